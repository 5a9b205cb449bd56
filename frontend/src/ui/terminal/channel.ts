import { openShell, readAnswer, readFrame, resized, type Size, typed, typedBytes } from "./wire";

/** Why a shell is over. `lost`: the connection broke, or was never made. */
export type Ending =
  { kind: "exited"; code: number } | { kind: "refused"; why: string } | { kind: "lost"; why: string };

interface Listener {
  onOpen: () => void;
  onOutput: (bytes: Uint8Array) => void;
  /** Told once. */
  onEnd: (ending: Ending) => void;
}

export interface Shell {
  type: (text: string) => void;
  typeBytes: (text: string) => void;
  resize: (size: Size) => void;
  /** Ends it, and tells nobody. */
  close: () => void;
}

/** A login shell at the other end of the platform's channel at `path`. */
export function connect(path: string, size: Size, { onOpen, onOutput, onEnd }: Listener): Shell {
  const address = new URL(path, location.href);
  address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
  const socket = new WebSocket(address);
  socket.binaryType = "arraybuffer";
  let state: "asked" | "open" | "over" = "asked";
  let wanted = size;
  const end = (ending: Ending) => {
    if (state === "over") return;
    state = "over";
    socket.close();
    onEnd(ending);
  };
  socket.onopen = () => socket.send(openShell(size));
  socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
    if (state === "over") return;
    if (typeof data === "string") {
      const answer = readAnswer(data);
      if (answer?.ok === false) end({ kind: "refused", why: answer.message });
      else if (answer && state === "asked") {
        state = "open";
        if (wanted !== size) socket.send(resized(wanted));
        onOpen();
      }
      return;
    }
    const frame = readFrame(data);
    if (frame?.kind === "output") onOutput(frame.bytes);
    else if (frame) end({ kind: "exited", code: frame.code });
  };
  socket.onclose = ({ reason }) => end({ kind: "lost", why: reason });
  const send = (data: Uint8Array<ArrayBuffer>) => state === "open" && socket.send(data);
  return {
    type: (text) => send(typed(text)),
    typeBytes: (text) => send(typedBytes(text)),
    resize: (next) => {
      wanted = next;
      send(resized(next));
    },
    close: () => {
      state = "over";
      socket.close();
    },
  };
}

import { flowing, openShell, readAnswer, readFrame, resized, type Size, type Start, typed, typedBytes } from "./wire";

/** Why a shell is over. `lost`: the connection broke, or was never made. */
export type Ending =
  { kind: "exited"; code: number } | { kind: "refused"; why: string } | { kind: "lost"; why: string };

interface Listener {
  onOpen: () => void;
  /** `done` is called once it has been dealt with: while too much waits, the platform sends nothing more. */
  onOutput: (bytes: Uint8Array, done: () => void) => void;
  /** Of a shell that has shown nothing for a while. */
  onStarting: (start: Start) => void;
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

/** Bytes that may wait to be drawn, and how few of them let more come. */
const MOST = 1 << 20;
const FEW = 1 << 17;

/** A login shell at the other end of the platform's channel at `path`. */
export function connect(path: string, size: Size, { onOpen, onOutput, onStarting, onEnd }: Listener): Shell {
  const address = new URL(path, location.href);
  address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
  const socket = new WebSocket(address);
  socket.binaryType = "arraybuffer";
  let state: "asked" | "open" | "over" = "asked";
  let wanted = size;
  let waiting = 0;
  let flows = true;
  const flow = (next: boolean) => {
    if (flows === next || socket.readyState !== WebSocket.OPEN) return;
    flows = next;
    socket.send(flowing(next));
  };
  const output = (bytes: Uint8Array) => {
    waiting += bytes.length;
    if (waiting > MOST) flow(false);
    onOutput(bytes, () => {
      waiting -= bytes.length;
      if (waiting < FEW) flow(true);
    });
  };
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
    if (frame?.kind === "output") output(frame.bytes);
    else if (frame?.kind === "starting") onStarting(frame.start);
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

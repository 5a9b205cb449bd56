import {
  encodeFlowControl,
  encodeOpenRequest,
  parseAnswer,
  parseFrame,
  encodeResize,
  type Size,
  type ShellStart,
  encodeInput,
  encodeInputBytes,
} from "./protocol";

/** Why a shell ended. `lost`: the connection broke or could not be made. */
export type ShellEnd =
  { kind: "exited"; code: number } | { kind: "refused"; why: string } | { kind: "lost"; why: string };

interface Listener {
  onOpen: () => void;
  /** Call `done` when the bytes are processed: beyond a limit of pending bytes the platform sends no more. */
  onOutput: (bytes: Uint8Array, done: () => void) => void;
  /** Called if the shell has printed nothing for a while. */
  onStarting: (start: ShellStart) => void;
  /** Called once. */
  onEnd: (ending: ShellEnd) => void;
}

export interface Shell {
  type: (text: string) => void;
  typeBytes: (text: string) => void;
  resize: (size: Size) => void;
  /** Ends the shell without calling `onEnd`. */
  close: () => void;
}

/** Pending bytes at which the platform is told to stop, and to continue. */
const MAX_PENDING_BYTES = 1 << 20;
const RESUME_BELOW_BYTES = 1 << 17;

/** Opens a login shell over the platform's WebSocket at `path`. */
export function connectShell(path: string, size: Size, { onOpen, onOutput, onStarting, onEnd }: Listener): Shell {
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
    socket.send(encodeFlowControl(next));
  };
  const output = (bytes: Uint8Array) => {
    waiting += bytes.length;
    if (waiting > MAX_PENDING_BYTES) flow(false);
    onOutput(bytes, () => {
      waiting -= bytes.length;
      if (waiting < RESUME_BELOW_BYTES) flow(true);
    });
  };
  const end = (ending: ShellEnd) => {
    if (state === "over") return;
    state = "over";
    socket.close();
    onEnd(ending);
  };
  socket.onopen = () => socket.send(encodeOpenRequest(size));
  socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
    if (state === "over") return;
    if (typeof data === "string") {
      const answer = parseAnswer(data);
      if (answer?.ok === false) end({ kind: "refused", why: answer.message });
      else if (answer && state === "asked") {
        state = "open";
        if (wanted !== size) socket.send(encodeResize(wanted));
        onOpen();
      }
      return;
    }
    const frame = parseFrame(data);
    if (frame?.kind === "output") output(frame.bytes);
    else if (frame?.kind === "starting") onStarting(frame.start);
    else if (frame) end({ kind: "exited", code: frame.code });
  };
  socket.onclose = ({ reason }) => end({ kind: "lost", why: reason });
  const send = (data: Uint8Array<ArrayBuffer>) => state === "open" && socket.send(data);
  return {
    type: (text) => send(encodeInput(text)),
    typeBytes: (text) => send(encodeInputBytes(text)),
    resize: (next) => {
      wanted = next;
      send(encodeResize(next));
    },
    close: () => {
      state = "over";
      socket.close();
    },
  };
}

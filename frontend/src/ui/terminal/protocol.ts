/**
 * The protocol of a shell's WebSocket (platform/fermi/envd/protocol.py): a line of JSON from each side, then frames of
 * one channel byte and a payload.
 */

const IN = 0;
const OUT = 1;
const ERR = 2;
const CONTROL = 3;

export interface Size {
  columns: number;
  rows: number;
}

/** Returns the first message: a login shell on a terminal of this size. */
export const encodeOpenRequest = (tty: Size): string =>
  JSON.stringify({ open: "exec", command: null, cwd: "", env: { TERM: "xterm-256color" }, tty });

/** Returns the message that stops or continues output, as pages cannot stop reading a WebSocket. */
export const encodeFlowControl = (flow: boolean): string => JSON.stringify({ flow });

export type Answer = { ok: true } | { ok: false; code: string; message: string };

/** Parses the answer to the first message. null: it is invalid. */
export function parseAnswer(text: string): Answer | null {
  const said = asObject(text);
  if (said?.ok === true) return { ok: true };
  if (said?.ok !== false) return null;
  const code = typeof said.code === "string" ? said.code : "UNKNOWN";
  return { ok: false, code, message: typeof said.message === "string" ? said.message : code };
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

function encodeFrame(channel: number, payload: Uint8Array): Uint8Array<ArrayBuffer> {
  const full = new Uint8Array(payload.length + 1);
  full[0] = channel;
  full.set(payload, 1);
  return full;
}

export const encodeInput = (text: string) => encodeFrame(IN, encoder.encode(text));

/** Encodes mouse reports of xterm's oldest protocol: one byte per character. */
export const encodeInputBytes = (text: string) =>
  encodeFrame(
    IN,
    Uint8Array.from(text, (character) => character.charCodeAt(0) & 255),
  );

export const encodeResize = (size: Size) => encodeFrame(CONTROL, encoder.encode(JSON.stringify({ resize: size })));

/** What a silent login shell is doing: the files that it reads, and the command that it waits for, or "". */
export interface ShellStart {
  files: string[];
  command: string;
}

export type Frame =
  { kind: "output"; bytes: Uint8Array } | { kind: "starting"; start: ShellStart } | { kind: "exit"; code: number };

/** Parses a frame. null: it is unknown. */
export function parseFrame(data: ArrayBuffer): Frame | null {
  const full = new Uint8Array(data);
  const payload = full.subarray(1);
  if (full[0] === OUT || full[0] === ERR) return { kind: "output", bytes: payload };
  const text = full[0] === CONTROL ? asObject(decoder.decode(payload)) : null;
  if (typeof text?.exit === "number") return { kind: "exit", code: text.exit };
  return text && "starting" in text ? { kind: "starting", start: parseShellStart(text.starting) } : null;
}

/** The data comes from an environment and is not trusted. */
function parseShellStart(said: unknown): ShellStart {
  const { files, command } = (said ?? {}) as Partial<Record<keyof ShellStart, unknown>>;
  return {
    files: Array.isArray(files) ? files.filter((file) => typeof file === "string") : [],
    command: typeof command === "string" ? command : "",
  };
}

function asObject(text: string): Record<string, unknown> | null {
  try {
    const message = JSON.parse(text) as unknown;
    return typeof message === "object" && message !== null ? (message as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}

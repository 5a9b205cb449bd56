/** What a shell's WebSocket carries, as platform/fermi/envd/protocol.py says it: a line of JSON from each side, then frames
 * of one byte of channel and a payload. */

const IN = 0;
const OUT = 1;
const ERR = 2;
const CONTROL = 3;

export interface Size {
  columns: number;
  rows: number;
}

/** The first thing that is said: a login shell on a terminal of this size. */
export const encodeOpenRequest = (tty: Size): string =>
  JSON.stringify({ open: "exec", command: null, cwd: "", env: { TERM: "xterm-256color" }, tty });

/** Whether more may come: pages cannot stop reading a WebSocket. */
export const encodeFlowControl = (flow: boolean): string => JSON.stringify({ flow });

export type Answer = { ok: true } | { ok: false; code: string; message: string };

/** null: it is no answer. */
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
  const whole = new Uint8Array(payload.length + 1);
  whole[0] = channel;
  whole.set(payload, 1);
  return whole;
}

export const encodeInput = (text: string) => encodeFrame(IN, encoder.encode(text));

/** What a mouse reports under xterm's oldest protocol: one byte for each character, whatever it is. */
export const encodeInputBytes = (text: string) =>
  encodeFrame(
    IN,
    Uint8Array.from(text, (character) => character.charCodeAt(0) & 255),
  );

export const encodeResize = (size: Size) => encodeFrame(CONTROL, encoder.encode(JSON.stringify({ resize: size })));

/** What a login shell is at that has printed nothing: the files that it reads, and the command that it waits for, or "". */
export interface ShellStart {
  files: string[];
  command: string;
}

export type Frame =
  { kind: "output"; bytes: Uint8Array } | { kind: "starting"; start: ShellStart } | { kind: "exit"; code: number };

/** null: nothing that is known here. */
export function parseFrame(data: ArrayBuffer): Frame | null {
  const whole = new Uint8Array(data);
  const payload = whole.subarray(1);
  if (whole[0] === OUT || whole[0] === ERR) return { kind: "output", bytes: payload };
  const said = whole[0] === CONTROL ? asObject(decoder.decode(payload)) : null;
  if (typeof said?.exit === "number") return { kind: "exit", code: said.exit };
  return said && "starting" in said ? { kind: "starting", start: parseShellStart(said.starting) } : null;
}

/** It comes from a place that is not trusted. */
function parseShellStart(said: unknown): ShellStart {
  const { files, command } = (said ?? {}) as Partial<Record<keyof ShellStart, unknown>>;
  return {
    files: Array.isArray(files) ? files.filter((file) => typeof file === "string") : [],
    command: typeof command === "string" ? command : "",
  };
}

function asObject(text: string): Record<string, unknown> | null {
  try {
    const said = JSON.parse(text) as unknown;
    return typeof said === "object" && said !== null ? (said as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}

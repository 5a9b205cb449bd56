import { expect, test } from "vitest";
import { encodeOpenRequest, parseAnswer, parseFrame, encodeResize, encodeInput, encodeInputBytes } from "./protocol";

const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

test("a shell is asked for with the size of its terminal", () => {
  expect(JSON.parse(encodeOpenRequest({ columns: 120, rows: 30 }))).toMatchObject({
    open: "exec",
    command: null,
    tty: { columns: 120, rows: 30 },
  });
});

test("what is typed goes to channel 0 as UTF-8, and a mouse's report byte for byte", () => {
  expect([...encodeInput("é")]).toEqual([0, 0xc3, 0xa9]);
  expect([...encodeInputBytes("\u001b[M\u00e9")]).toEqual([0, 27, 91, 77, 0xe9]);
  const control = encodeResize({ columns: 80, rows: 24 });
  expect(control[0]).toBe(3);
  expect(JSON.parse(text(control.subarray(1)))).toEqual({ resize: { columns: 80, rows: 24 } });
});

test("output comes on two channels, and the exit on the last", () => {
  const frame = (channel: number, payload: string) =>
    Uint8Array.of(channel, ...new TextEncoder().encode(payload)).buffer;
  const output = parseFrame(frame(2, "no such file"));
  expect(output?.kind === "output" && text(output.bytes)).toBe("no such file");
  expect(parseFrame(frame(3, '{"exit": 130}'))).toEqual({ kind: "exit", code: 130 });
  expect([parseFrame(frame(3, "{")), parseFrame(frame(9, "x")), parseFrame(new ArrayBuffer(0))]).toEqual([
    null,
    null,
    null,
  ]);
});

test("a shell that shows nothing says what it waits for, whatever shape that has", () => {
  const read = (payload: string) => parseFrame(Uint8Array.of(3, ...new TextEncoder().encode(payload)).buffer);
  expect(read('{"starting": {"files": ["~/.bashrc"], "command": "flock x"}}')).toEqual({
    kind: "starting",
    start: { files: ["~/.bashrc"], command: "flock x" },
  });
  const nothing = { kind: "starting", start: { files: [], command: "" } };
  expect([read('{"starting": null}'), read('{"starting": {"files": [1], "command": 2}}')]).toEqual([nothing, nothing]);
});

test("a refusal says why, and what is no answer is none", () => {
  expect(parseAnswer('{"ok": true, "pid": 7}')).toEqual({ ok: true });
  expect(parseAnswer('{"ok": false, "code": "AWAY", "message": "它不在"}')).toMatchObject({
    ok: false,
    message: "它不在",
  });
  expect(parseAnswer('{"ok": false, "code": "AWAY"}')).toMatchObject({ message: "AWAY" });
  expect([parseAnswer("{}"), parseAnswer("nonsense"), parseAnswer("null")]).toEqual([null, null, null]);
});

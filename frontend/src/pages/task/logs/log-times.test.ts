import { expect, test, vi } from "vitest";
import type { LogLine } from "@/api/logs";
import { findIndexAt, parseLocalTime, formatLocalTime, getTimeAt, ScrollSync } from "./log-times";

const log = (...times: (number | undefined)[]): LogLine[] =>
  times.map((at, offset) => ({ rank: 0, offset, text: "", at }));

test("a line without a time has that of the line above it", () => {
  const lines = log(undefined, 10, undefined, undefined, 20);
  expect([0, 1, 3, 4, 99].map((index) => getTimeAt(lines, index))).toEqual([undefined, 10, 10, 20, 20]);
});

test("a time is the first line from then on, else the end; a log without times has none", () => {
  const lines = log(undefined, 10, undefined, 20);
  expect([5, 10, 11, 21].map((time) => findIndexAt(lines, time))).toEqual([1, 1, 3, 3]);
  expect(findIndexAt(log(undefined, undefined), 5)).toBeUndefined();
  expect(findIndexAt([], 5)).toBeUndefined();
});

test("only the log under the reader's hand moves the others", () => {
  const together = new ScrollSync();
  const went = [vi.fn(), vi.fn(), vi.fn()] as const;
  const leave = together.join(0, went[0]);
  together.join(1, went[1]);
  together.join(2, went[2]);
  together.moved(1, 5);
  together.lead(1);
  together.moved(1, 6);
  together.moved(2, 7);
  together.moved(1, undefined);
  leave();
  together.moved(1, 8);
  expect(went.map(({ mock }) => mock.calls.flat() as unknown[])).toEqual([[6], [], [6, 8]]);
});

test("moments go to the reader's clock and back", () => {
  const iso = "2026-11-21T05:00:09.000Z";
  expect(parseLocalTime(formatLocalTime(iso))).toBe(iso);
  expect([formatLocalTime(undefined), parseLocalTime("")]).toEqual(["", undefined]);
});

import { expect, test } from "vitest";
import type { LogLine } from "@/api/logs";
import { LogSearch } from "./search";

const log = (...texts: string[]): LogLine[] => texts.map((text, offset) => ({ rank: 0, offset, text }));
const texts = (lines: LogLine[]) => lines.map(({ text }) => text);

test("a search finds lines whatever their case, and everything without a needle", () => {
  const lines = log("Loss 1", "checkpoint", "loss 2");
  const search = new LogSearch();
  expect(texts(search.among(lines, "loss"))).toEqual(["Loss 1", "loss 2"]);
  expect(search.among(lines, "")).toBe(lines);
});

test("a log that grew is found like one that is searched anew", () => {
  const search = new LogSearch();
  let lines = log("loss 1");
  search.among(lines, "loss");
  for (let n = 2; n < 200; n++) {
    lines = [...lines, ...log(n % 3 ? `loss ${n}` : "noise")];
    expect(search.among(lines, "loss")).toEqual(new LogSearch().among(lines, "loss"));
  }
});

test("another log, another needle, and a log that lost its head are searched anew", () => {
  const search = new LogSearch();
  const lines = log("a1", "b1", "a2");
  search.among(lines, "a");
  expect(texts(search.among(lines, "b"))).toEqual(["b1"]);
  expect(texts(search.among(log("b2", "b3", "b4", "b5"), "b"))).toEqual(["b2", "b3", "b4", "b5"]);
  expect(texts(search.among(lines.slice(1), "a"))).toEqual(["a2"]);
});

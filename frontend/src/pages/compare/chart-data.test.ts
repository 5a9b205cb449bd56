import { expect, test } from "vitest";
import type { RunCurve } from "@/api/compare";
import { alignLines, buildBandLines, buildLines, chooseStyle, findValue, type Line } from "./chart-data";
import { buildScale } from "./plot-scales";

const curve = (taskId: string, x: number[], y: number[]): RunCurve => ({
  ...{
    taskId,
    metric: "loss",
    source: "json",
    x,
    y,
    low: y.map((value) => value - 1),
    high: y.map((value) => value + 1),
  },
  ...{
    count: x.length,
    smoothed: null,
    last: y.at(-1) ?? null,
    lastStep: 1,
    restarts: [],
    notFinite: 0,
    complete: true,
  },
});
const line = (x: number[], y: number[], more: Partial<Line> = {}): Line => ({
  ...{ key: "a", label: "a", x, y, color: "--curve-1", dash: [], ...more },
});

test("curves with places of their own share one axis", () => {
  const { data, edges } = alignLines(
    [line([0, 2], [1, 3]), line([1, 2], [5, 6], { low: [4, 5], high: [6, 7] })],
    false,
  );
  expect(data).toEqual([
    [0, 1, 2],
    [1, null, 3],
    [null, 5, 6],
    [null, 6, 7],
    [null, 4, 5],
  ]);
  expect(edges).toEqual([[3, 4]]);
});

test("a logarithmic axis leaves out what is not positive", () => {
  expect(alignLines([line([0, 1, 2], [-1, 0, 2])], true).data[1]).toEqual([null, null, 2]);
});

test("a smoothed curve has its own points behind it, and hidden runs have no line", () => {
  const styles = new Map([["a", chooseStyle(0, "first")]]);
  const curves = [curve("a", [0, 1], [1, 2]), curve("b", [0, 1], [1, 2])];
  const plain = buildLines(curves, styles, { smoothing: 0, extremes: true });
  expect(plain.map(({ key, low }) => [key, low])).toEqual([["a", [0, 1]]]);
  const [faint, smoothed] = buildLines(curves, styles, { smoothing: 0.5, extremes: false });
  expect([faint?.faint, faint?.y, smoothed?.y]).toEqual([true, [1, 2], [1, 1.25 / 0.75]]);
});

test("runs beyond the colours are told apart by their dashes", () => {
  const [first, eighth] = [chooseStyle(0, "a"), chooseStyle(7, "b")];
  expect([first.color === eighth.color, first.dash.length, eighth.dash.length > 0]).toEqual([true, 0, true]);
  expect(chooseStyle(0, "a", 4).color).toBe(4);
});

test("a band is a line with its spread", () => {
  const band = { metric: "loss", group: "1", taskIds: ["a", "b"], x: [0], mean: [2], low: [1], high: [3] };
  const bands = [{ ...band, lowQuartile: [1], highQuartile: [3], count: [2] }];
  const [found] = buildBandLines(bands, 0, (group, runs) => `${group} ${runs}`);
  expect([found?.label, found?.y, found?.low, found?.high]).toEqual(["1 2", [2], [1], [3]]);
});

test("between its points a curve has the value before, and none outside of them", () => {
  const column = [null, 1, null, 3, null];
  expect([0, 1, 2, 3, 4].map((at) => findValue(column, at))).toEqual([null, 1, 1, 3, null]);
});

test("numbers that differ by far are on a logarithmic scale, and words in the order of the alphabet", () => {
  const rates = buildScale(["0.001", "0.01", "0.1"], 0, 100, false);
  expect(["0.001", "0.01", "0.1", undefined].map((value) => Math.round(rates.place(value)))).toEqual([0, 50, 100, 0]);
  const words = buildScale(["sgd", "adam", undefined], 0, 100, false);
  expect([words.place("adam"), words.place("sgd"), words.ticks.map(({ label }) => label)]).toEqual([
    25,
    75,
    ["adam", "sgd"],
  ]);
  expect(buildScale(["3", "3"], 0, 100, false).place("3")).toBe(50);
  expect(buildScale([], 0, 100, false).ticks).toEqual([]);
});

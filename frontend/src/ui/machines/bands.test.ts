import { expect, test } from "vitest";
import type { Metric, TelemetrySeries } from "@/api/types";
import { band, MOST_LINES, moments, onMoments, panelsOf, stepsAt } from "./bands";

const one = (metric: TelemetrySeries["metric"], rank: number | null, values: (number | null)[]): TelemetrySeries => ({
  metric,
  unit: "%",
  index: String(rank ?? ""),
  node: 0,
  rank,
  values,
  most: null,
});

const printed = (seconds: number, step: number, loss?: number): Metric => ({
  id: step,
  attempt: 1,
  rank: 0,
  step,
  at: new Date(seconds * 1000).toISOString(),
  values: loss === undefined ? {} : { loss },
});

test("few series are lines, and many a band with the rank that is singled out", () => {
  const few = panelsOf([one("gpu", 0, [1, 2]), one("gpu", 1, [3, null])]);
  expect(few.map(({ id, count, drawn }) => [id, count, drawn.map(({ role }) => role)])).toEqual([
    ["gpu", 2, ["line", "line"]],
  ]);
  const all = Array.from({ length: MOST_LINES + 1 }, (_, rank) => one("gpu", rank, [rank, rank * 2]));
  const [many] = panelsOf(all, 3);
  expect(many?.drawn.map(({ role, values }) => [role, values])).toEqual([
    ["most", [16, 32]],
    ["least", [0, 0]],
    ["middle", [8, 16]],
    ["line", [3, 6]],
  ]);
  expect(panelsOf(all, 99)[0]?.drawn).toHaveLength(3);
});

test("what says nothing has no chart, and ranks come before their node", () => {
  expect(panelsOf([one("power", 0, [null, null])])).toEqual([]);
  const [cpu] = panelsOf([one("cpu", null, [50]), one("rank_cpu", 1, [9])]);
  expect(cpu?.drawn.map(({ series }) => series?.metric)).toEqual(["rank_cpu"]);
  expect(panelsOf([one("received", null, [1]), one("sent", null, [2])])[0]?.count).toBe(2);
});

test("a moment of which nothing is known stays empty in a band", () => {
  expect(band([one("gpu", 0, [null, 5]), one("gpu", 1, [null, null])]).map(({ values }) => values)).toEqual([
    [null, 5],
    [null, 5],
    [null, 5],
  ]);
  expect(band([])).toHaveLength(3);
});

test("the step at a moment is the last that was reported before it", () => {
  const step = stepsAt([printed(120, 20), printed(60, 10)]);
  expect([0, 59, 60, 119, 120, 1e9].map(step)).toEqual([null, null, 10, 10, 20, 20]);
  expect(stepsAt([])(5)).toBeNull();
});

test("what was printed lies on the moments of what was measured", () => {
  const at = moments("1970-01-01T00:01:00Z", 15, 4);
  expect(at).toEqual([60, 75, 90, 105]);
  const metrics = [
    printed(59, 1, 9),
    printed(61, 2, 8),
    printed(70, 3, 7),
    printed(104, 4, 6),
    printed(121, 5, 5),
    printed(80, 6),
  ];
  expect(onMoments(metrics, "loss", at)).toEqual([7, null, 6, null]);
  expect(onMoments(metrics, "loss", [])).toEqual([]);
});

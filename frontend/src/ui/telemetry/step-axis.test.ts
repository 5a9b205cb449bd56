import { expect, test } from "vitest";
import type { Metric } from "@/api/types";
import { alignMetric, findStepAt, computeStepTicks } from "./step-axis";

const printed = (seconds: number, step: number, { attempt = 1, loss = 1, rank = 0 } = {}): Metric => ({
  id: seconds,
  attempt,
  rank,
  step,
  source: "json",
  at: new Date(seconds * 1000).toISOString(),
  values: { loss },
});

test("the step at a moment is the last that was reported before it", () => {
  const step = findStepAt([printed(120, 20), printed(60, 10), printed(61, 9, { rank: 1 })]);
  expect([0, 59, 60, 119, 120, 1e9].map(step)).toEqual([null, null, 10, 10, 20, 20]);
  expect(findStepAt([])(5)).toBeNull();
});

test("ticks are round steps, where they were reached", () => {
  const even = [printed(1000, 10), printed(1200, 210), printed(1400, 230)];
  expect(computeStepTicks(even)(1000, 1400, 5)).toEqual([
    { at: 1040, step: 50 },
    { at: 1140, step: 150 },
  ]);
  expect(computeStepTicks(even)(1000, 1100, 4)).toEqual([
    { at: 1040, step: 50 },
    { at: 1090, step: 100 },
  ]);
  expect(computeStepTicks([])(0, 100, 5)).toEqual([]);
  expect(computeStepTicks(even)(0, 900, 5)).toEqual([]);
});

test("a step that was done again has one tick, where it was done for good", () => {
  const again = [
    printed(100, 10),
    printed(200, 110),
    printed(400, 60, { attempt: 2 }),
    printed(500, 160, { attempt: 2 }),
  ];
  const ticks = computeStepTicks(again)(100, 500, 8);
  expect(ticks).toEqual([
    { at: 110, step: 20 },
    { at: 400, step: 60 },
    { at: 460, step: 120 },
  ]);
});

test("what was printed is a line with nothing between two attempts", () => {
  const metrics = [
    printed(20, 2, { loss: 3 }),
    printed(10, 1, { loss: 4 }),
    printed(15, 1, { rank: 1, loss: 99 }),
    printed(30, 3, { loss: NaN }),
    printed(60, 2, { attempt: 2, loss: 5 }),
  ];
  expect(alignMetric(metrics, "loss")).toEqual({ moments: [10, 20, 40, 60], values: [4, 3, null, 5] });
  expect(alignMetric([], "loss")).toEqual({ moments: [], values: [] });
});

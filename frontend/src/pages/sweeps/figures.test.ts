import { expect, test } from "vitest";
import type { SweepTrial } from "@/api/types";
import { buildAxis, computeQuality, rateTrials } from "./figures";

const trial = (number: number, value: number | null) => ({ number, value }) as SweepTrial;

test("the best so far follows the goal, and trials without an objective are left out", () => {
  const trials = [trial(2, 5), trial(0, 3), trial(1, null), trial(3, 1)];
  expect(rateTrials(trials, "minimize")).toEqual([
    { number: 0, value: 3, best: 3 },
    { number: 2, value: 5, best: 3 },
    { number: 3, value: 1, best: 1 },
  ]);
  expect(rateTrials(trials, "maximize").map(({ best }) => best)).toEqual([3, 5, 5]);
});

test("an axis of numbers is logarithmic where they span powers of ten", () => {
  expect(buildAxis("lr", [1e-4, 1e-2, 1e-3], String).place(1e-3)).toBeCloseTo(0.5);
  expect(buildAxis("layers", [2, 4, 8], String).place(5)).toBeCloseTo(0.5);
  expect(buildAxis("same", [3, 3], String).place(3)).toBe(0.5);
  expect(buildAxis("lr", [1, 2], String).place(undefined)).toBeNull();
});

test("an axis of texts has them in order", () => {
  const axis = buildAxis("optimizer", ["sgd", "adam", undefined, "lion"], String);
  expect([axis.low, axis.high]).toEqual(["adam", "sgd"]);
  expect(axis.place("lion")).toBe(0.5);
  expect(axis.place("other")).toBeNull();
  expect(buildAxis("flag", [true, false], String).place(true)).toBe(1);
});

test("the best objective has the quality one", () => {
  expect(computeQuality(1, [1, 2, 3], "minimize")).toBe(1);
  expect(computeQuality(1, [1, 2, 3], "maximize")).toBe(0);
  expect(computeQuality(2, [2, 2], "minimize")).toBe(1);
});

import { describe, expect, test } from "vitest";
import { pulse, seen, used } from "./fixtures";
import {
  computeLags,
  getScaleLevel,
  computeScale,
  buildRankSnapshots,
  shortenNames,
  formatRankSpans,
} from "./rank-metrics";
import { task } from "@/test/fixtures";

describe("steps behind the foremost rank", () => {
  test("are counted from the one that is furthest", () => {
    const lags = computeLags([pulse(0, { step: 100 }), pulse(1, { step: 93 }), pulse(2, { step: null })]);
    expect([...lags]).toEqual([
      [0, 0],
      [1, 7],
    ]);
  });

  test("do not count what the foremost did since the other one was looked at", () => {
    const foremost = pulse(0, { step: 100, stepSeconds: 0.5, at: "2026-11-21T05:00:10Z" });
    const earlier = pulse(1, { step: 80, at: "2026-11-21T05:00:00Z" });
    const stuck = pulse(2, { step: 60, at: "2026-11-21T05:00:00Z" });
    expect([...computeLags([foremost, earlier, stuck]).values()]).toEqual([0, 0, 20]);
  });

  test("of nobody are none", () => {
    expect(computeLags([]).size).toBe(0);
  });
});

describe("a scale", () => {
  test("of a share goes from none to all, of memory to what there is", () => {
    expect(computeScale("gpu", [seen(0, { use: used(0, { gpu: 12 }) })])).toEqual({ from: 0, to: 100 });
    const memory = used(0, { gpuMemory: 20, gpuMemoryTotal: 80 });
    expect(computeScale("gpuMemory", [seen(0, { use: memory })])).toEqual({ from: 0, to: 80 });
  });

  test("of temperatures begins near the coolest, and is never narrower than noise", () => {
    const ranks = [61, 64].map((temperature, rank) => seen(rank, { use: used(rank, { temperature }) }));
    expect(computeScale("temperature", ranks)).toEqual({ from: 60, to: 80 });
  });

  test("of anything else ends at a round value", () => {
    const power = [310, 402].map((power, rank) => seen(rank, { use: used(rank, { power }) }));
    expect(computeScale("power", power)).toEqual({ from: 0, to: 500 });
    expect(computeScale("lag", [seen(0, { lag: 0 })])).toEqual({ from: 0, to: 10 });
  });

  test("has eight colours, and its ends belong to it", () => {
    const scale = { from: 0, to: 100 };
    expect([-5, 0, 12, 13, 99, 100, 180].map((value) => getScaleLevel(value, scale))).toEqual([0, 0, 0, 1, 7, 7, 7]);
    expect(getScaleLevel(3, { from: 0, to: 0 })).toBe(0);
  });
});

test("what is known of a rank is joined by its number", () => {
  const [first, second] = buildRankSnapshots(task, [pulse(1, { step: 4 })], [used(0, { gpu: 50 })]);
  expect([first?.use?.gpu, first?.pulse, first?.lag]).toEqual([50, undefined, null]);
  expect([second?.use, second?.pulse?.step, second?.lag, second?.node?.name]).toEqual([
    undefined,
    4,
    0,
    "name-of-env-1",
  ]);
});

test("nodes go by what their names differ in", () => {
  expect(shortenNames(["gpu-node-001", "gpu-node-014"])).toEqual(["001", "014"]);
  expect(shortenNames(["gpu-1", "cpu-1"])).toEqual(["gpu-1", "cpu-1"]);
  expect(shortenNames(["lab-1", "lab-12"])).toEqual(["1", "12"]);
  expect(shortenNames(["node7", "node71"])).toEqual(["node7", "node71"]);
  expect(shortenNames(["only-one"])).toEqual(["only-one"]);
  expect(shortenNames([])).toEqual([]);
});

test("ranks in a row are told as a span", () => {
  expect(formatRankSpans([9, 3, 4, 5])).toBe("3–5, 9");
  expect(formatRankSpans([7])).toBe("7");
});

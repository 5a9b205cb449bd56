import { expect, test } from "vitest";
import type { TelemetrySeries } from "@/api/types";
import {
  computeBand,
  MAX_LINES,
  buildTimestamps,
  findNewestIndex,
  buildPanels,
  findGaps,
  getValueAt,
} from "./chart-data";
import { DEFAULT_PANELS, listMetrics, PANEL_IDS, decodeThrottleReasons } from "./metrics";

const one = (
  metric: TelemetrySeries["metric"],
  rank: number | null,
  values: (number | null)[],
  node: number | null = 0,
): TelemetrySeries => ({ metric, unit: "%", index: String(rank ?? ""), node, rank, values, most: null });

test("few series are lines, and many a band with the rank that is singled out", () => {
  const few = buildPanels([one("gpu", 0, [1, 2]), one("gpu", 1, [3, null])], DEFAULT_PANELS);
  expect(few.map(({ id, count, drawn }) => [id, count, drawn.map(({ role }) => role)])).toEqual([
    ["gpu", 2, ["line", "line"]],
  ]);
  const all = Array.from({ length: MAX_LINES + 4 }, (_, rank) => one("gpu", rank, [rank, rank * 2]));
  const [many] = buildPanels(all, DEFAULT_PANELS, 3);
  expect(many?.drawn.map(({ role, values }) => [role, values])).toEqual([
    ["most", [19, 38]],
    ["high", [17, 34]],
    ["middle", [10, 20]],
    ["low", [2, 4]],
    ["least", [0, 0]],
    ["line", [3, 6]],
  ]);
  expect(buildPanels(all, DEFAULT_PANELS, 99)[0]?.drawn).toHaveLength(5);
});

test("what says nothing or was not chosen has no chart, and ranks come before their node", () => {
  expect(buildPanels([one("power", 0, [null, null])], DEFAULT_PANELS)).toEqual([]);
  expect(buildPanels([one("power", 0, [1])], ["gpu"])).toEqual([]);
  const series = [one("cpu", null, [50]), one("rank_cpu", 1, [9])];
  const panels = buildPanels(series, ["cpu", "nodeCpu"]);
  expect(panels.map(({ drawn }) => drawn.map(({ series }) => series?.metric))).toEqual([["rank_cpu"], ["cpu"]]);
  expect(buildPanels([one("received", null, [1]), one("sent", null, [2])], DEFAULT_PANELS)[0]?.count).toBe(2);
  expect(buildPanels([one("load", null, [1], 0), one("load", null, [1], 1)], ["load"])[0]?.nodes).toBe(true);
});

test("a metric that two charts show is asked for once", () => {
  const request = listMetrics(PANEL_IDS);
  expect(new Set(request).size).toBe(request.length);
  expect(listMetrics(["cpu", "nodeCpu"])).toEqual(["rank_cpu", "cpu"]);
});

test("a band names whose value is the least and the largest at a moment, and is empty where nothing is known", () => {
  const all = [one("gpu", 0, [null, 5, 9]), one("gpu", 1, [null, null, 7]), one("gpu", 2, [null, 6, 8])];
  const lines = Object.fromEntries(computeBand(all).map((line) => [line.role, line]));
  const whose = (role: string) => [0, 1, 2].map((at) => lines[role]?.whose?.(at)?.rank);
  expect(lines.middle?.values).toEqual([null, 6, 8]);
  expect([whose("least"), whose("most")]).toEqual([
    [undefined, 0, 1],
    [undefined, 2, 0],
  ]);
  expect(computeBand([]).map(({ values }) => values)).toEqual([[], [], [], [], []]);
});

test("a band's places are those of sorted values", () => {
  const columns = 9;
  const all = Array.from({ length: 137 }, (_, rank) =>
    one(
      "gpu",
      rank,
      Array.from({ length: columns }, (_, at) => ((rank + 3) * (at + 7) * 7919) % (at < 5 ? 101 : 3)),
    ),
  );
  const drawn = computeBand(all);
  for (let at = 0; at < columns; at++) {
    const sorted = all.map(({ values }) => values[at] ?? 0).sort((a, b) => a - b);
    expect(drawn.map(({ values }) => values[at])).toEqual([136, 123, 68, 13, 0].map((place) => sorted[place]));
  }
});

test("a silence is where nothing at all was measured, for longer than samples are apart", () => {
  const at = buildTimestamps("1970-01-01T00:00:00Z", 15, 12);
  const values = (...places: number[]) => at.map((_, place) => (places.includes(place) ? 1 : null));
  const series = [one("gpu", 0, values(0, 1, 3)), one("gpu", 1, values(2, 10))];
  expect(findGaps(series, at, 180)).toEqual([[60, 150]]);
  expect(findGaps([one("gpu", 0, values(0))], at, 180)).toEqual([[15, 180]]);
  expect(findGaps([], [], 180)).toEqual([]);
});

test("without a cursor a line says its newest, unless that is old", () => {
  const late = [1, 2, null, null];
  expect(findNewestIndex([[1, null, null, null], late, []])).toBe(1);
  expect(findNewestIndex([])).toBe(-1);
  expect([getValueAt(late, 3, true), getValueAt(late, 3, false), getValueAt(late, 0, false)]).toEqual([2, null, 1]);
  expect(getValueAt([1, null, null, null, null, null], 5, true)).toBeNull();
});

test("bits say why a GPU was slower", () => {
  expect([0, 1, 6, 8].map(decodeThrottleReasons)).toEqual([[], ["power"], ["heat", "hardware"], ["other"]]);
});

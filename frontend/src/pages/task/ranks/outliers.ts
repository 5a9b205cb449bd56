import type { TaskNode } from "@/api/types";
import { type RankMetric, getMetricValue, type RankSnapshot } from "./rank-metrics";

/** Ranks of one node that are far from the median of the job. */
export interface Outlier {
  node: TaskNode | undefined;
  ranks: number[];
  amount: RankMetric;
  /** Their median, and that of all ranks. */
  value: number;
  middle: number;
}

/**
 * The most telling metric first: a rank is named once. `far` returns the difference at which a value is an outlier, on
 * the bad side.
 */
const RULES: { amount: RankMetric; side: 1 | -1; far: (middle: number) => number }[] = [
  { amount: "silent", side: 1, far: (middle) => Math.max(20, 4 * middle) },
  { amount: "lag", side: 1, far: (middle) => Math.max(10, 2 * middle) },
  { amount: "gpu", side: -1, far: (middle) => Math.max(20, 0.4 * middle) },
  { amount: "power", side: -1, far: (middle) => Math.max(50, 0.4 * middle) },
  { amount: "cpu", side: -1, far: (middle) => Math.max(40, 0.6 * middle) },
  { amount: "temperature", side: 1, far: () => 15 },
];

/** Fewer ranks have no meaningful median. */
const MIN_RANKS = 4;
/** If a larger share differs, none is an outlier. */
const MAX_OUTLIER_SHARE = 0.25;

export function findOutliers(all: RankSnapshot[]): Outlier[] {
  const named = new Set<number>();
  return RULES.flatMap(({ amount, side, far }) => {
    const known = all.flatMap((seen) => {
      const value = seen.rank.state === "running" ? getMetricValue(amount, seen) : null;
      return value == null ? [] : [{ seen, value }];
    });
    if (known.length < MIN_RANKS) return [];
    const middle = computeMedian(known.map(({ value }) => value));
    const odd = known.filter(({ value }) => side * (value - middle) >= far(middle));
    if (odd.length > known.length * MAX_OUTLIER_SHARE) return [];
    const fresh = odd.filter(({ seen }) => !named.has(seen.rank.rank));
    for (const { seen } of fresh) named.add(seen.rank.rank);
    return [...new Set(fresh.map(({ seen }) => seen.node))]
      .map((node) => {
        const existing = fresh.filter(({ seen }) => seen.node === node);
        const ranks = existing.map(({ seen }) => seen.rank.rank);
        return { node, ranks, amount, value: computeMedian(existing.map(({ value }) => value)), middle };
      })
      .sort((one, other) => side * (other.value - one.value));
  });
}

function computeMedian(values: number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor((values.length - 1) / 2)] ?? 0;
}

import type { Metric } from "@/api/types";

/** Value by step. */
export type Points = Map<number, number>;

export interface Series {
  points: Points;
  /** What an earlier attempt had reached beyond the checkpoint that a later one started from. */
  discarded: Points;
  /** The first step of every attempt after the first. */
  restarts: number[];
  /** Where it was NaN or infinite; `to` is the last such step. */
  notFinite: NonFiniteInterval[];
}

export interface NonFiniteInterval {
  from: number;
  to: number;
  /** Nothing finite followed. */
  open: boolean;
}

/** One metric as one line through all attempts; `metrics` in the order in which they were made. */
export function buildSeries(metrics: Metric[], name: string): Series {
  const reported = metrics.filter((metric) => metric.values[name] !== undefined);
  const rank = Math.min(...reported.map((metric) => metric.rank));
  const mine = reported.filter((metric) => metric.rank === rank);
  const firstStep = new Map<number, number>();
  for (const { attempt, step } of mine) firstStep.set(attempt, Math.min(step, firstStep.get(attempt) ?? step));
  const attempts = [...firstStep.keys()].sort((a, b) => a - b);
  const voidFrom = (attempt: number) =>
    Math.min(...attempts.filter((later) => later > attempt).map((later) => firstStep.get(later) ?? Infinity));
  const limit = new Map(attempts.map((attempt) => [attempt, voidFrom(attempt)]));
  const series: Series = {
    points: new Map(),
    discarded: new Map(),
    restarts: attempts.slice(1).map((attempt) => firstStep.get(attempt) ?? 0),
    notFinite: [],
  };
  for (const { attempt, step, values } of mine) {
    const counts = step < (limit.get(attempt) ?? Infinity);
    const value = values[name] ?? null; // the platform stores null for what is not finite
    if (value !== null) (counts ? series.points : series.discarded).set(step, value);
    if (!counts) continue;
    const gap = series.notFinite.at(-1);
    if (value !== null) {
      if (gap) gap.open = false;
    } else if (gap?.open) gap.to = step;
    else series.notFinite.push({ from: step, to: step, open: true });
  }
  return series;
}

/** Every metric that was ever reported, in the order of first appearance. */
export function listMetricNames(metrics: Metric[]): string[] {
  const names = new Set<string>();
  for (const { values } of metrics) for (const name in values) names.add(name);
  return [...names];
}

/**
 * Exponential moving average, `weight` 0 (nothing) to below 1. Divided by the weights so far, so that it does not
 * start at zero and climb.
 */
export function smoothPoints(points: Points, weight: number): Points {
  let sum = 0;
  let weights = 0;
  const smoothed: Points = new Map();
  for (const [step, value] of points) {
    sum = weight * sum + (1 - weight) * value;
    weights = weight * weights + (1 - weight);
    smoothed.set(step, sum / weights);
  }
  return smoothed;
}

/** uPlot's shape: the steps of all lines, and `more` of the axis, then each line's values at them. */
export function alignSeries(lines: Points[], more: number[] = []): [number[], ...(number | null)[][]] {
  const steps = [...new Set([...more, ...lines.flatMap((line) => [...line.keys()])])].sort((a, b) => a - b);
  return [steps, ...lines.map((line) => steps.map((step) => line.get(step) ?? null))];
}

const PACE_POINTS = 50;

/** Seconds that are left at the pace of the last points of this attempt; undefined while there is no pace yet. */
export function estimateSecondsLeft(metrics: Metric[], totalSteps: number | null): number | undefined {
  const last = metrics.at(-1);
  if (!last || totalSteps == null) return undefined;
  const recent = metrics
    .slice(-PACE_POINTS)
    .filter((metric) => metric.attempt === last.attempt && metric.rank === last.rank);
  const first = recent[0];
  if (!first || last.step <= first.step) return undefined;
  const perStep = (new Date(last.at).getTime() - new Date(first.at).getTime()) / (last.step - first.step) / 1000;
  return Math.max(0, totalSteps - last.step) * perStep;
}

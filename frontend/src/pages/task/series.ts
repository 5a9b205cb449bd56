import type { Metric } from "@/api/types";

/** Values by step. */
export type Points = Map<number, number>;

export interface Series {
  points: Points;
  /** Points of earlier attempts beyond the checkpoint that a later one started from. */
  discarded: Points;
  /** First step of each attempt but the first. */
  restarts: number[];
  /** Ranges that were NaN or infinite; `to` is the last such step. */
  notFinite: NonFiniteInterval[];
}

export interface NonFiniteInterval {
  from: number;
  to: number;
  /** No finite value followed. */
  open: boolean;
}

/**
 * Returns a metric as one line over all attempts, of all sources or of these; `metrics` in the order of creation.
 */
export function buildSeries(metrics: Metric[], name: string, sources?: string[]): Series {
  const reported = metrics.filter(
    (metric) => metric.values[name] !== undefined && (!sources || sources.includes(metric.source)),
  );
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
    const value = values[name] ?? null; // the platform stores null for values that are not finite
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

/** Returns the names of all reported metrics, in the order of appearance. */
export function listMetricNames(metrics: Metric[]): string[] {
  const names = new Set<string>();
  for (const { values } of metrics) for (const name in values) names.add(name);
  return [...names];
}

/** Best last, as the platform has it (`fermi.metrics.points`); all others are calls of trackers, which are better. */
const SOURCES = ["file", "text", "json"];

/**
 * Returns the sources of a metric, those of one curve together, the best first. Where two sources report a metric in one
 * attempt, the platform found that their values differ (otherwise it keeps one), so they are curves of their own.
 */
export function groupSources(metrics: Metric[], name: string): string[][] {
  const attempts = new Map<string, Set<number>>();
  for (const { source, attempt, values } of metrics) {
    if (values[name] === undefined) continue;
    const known = attempts.get(source);
    if (known) known.add(attempt);
    else attempts.set(source, new Set([attempt]));
  }
  const priority = (source: string) => (SOURCES.includes(source) ? SOURCES.indexOf(source) : SOURCES.length);
  const groups: { sources: string[]; attempts: Set<number> }[] = [];
  for (const [source, mine] of [...attempts].sort(([one], [other]) => priority(other) - priority(one))) {
    const group = groups.find((each) => [...mine].every((attempt) => !each.attempts.has(attempt)));
    if (group) {
      group.sources.push(source);
      for (const attempt of mine) group.attempts.add(attempt);
    } else groups.push({ sources: [source], attempts: new Set(mine) });
  }
  return groups.map(({ sources }) => sources);
}

/** Returns a name as it is compared: `train/Loss`, `training_loss` and `loss` are one. */
function simplifyName(name: string): string {
  const simple = name.toLowerCase().replace(/[/.\s-]+/g, "_");
  return simple.replace(/^train(?:ing)?_/, "").replace(/_train$/, "");
}

/** Returns the name of the training loss; undefined if there is none. */
export function findLossName(names: string[]): string | undefined {
  return names.includes("loss") ? "loss" : names.find((name) => simplifyName(name) === "loss");
}

/** Returns whether a metric is the loss on validation data. */
export function isValidationLoss(name: string): boolean {
  return /^(?:val|valid|validation|eval|evaluation)_loss$/.test(simplifyName(name));
}

/** Returns the exponential moving average with `weight` from 0 (off) to below 1, corrected for its start at zero. */
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

/** Returns uPlot's data: all steps (and `more`), then the values of each line at them. */
export function alignSeries(lines: Points[], more: number[] = []): [number[], ...(number | null)[][]] {
  const steps = [...new Set([...more, ...lines.flatMap((line) => [...line.keys()])])].sort((a, b) => a - b);
  return [steps, ...lines.map((line) => steps.map((step) => line.get(step) ?? null))];
}

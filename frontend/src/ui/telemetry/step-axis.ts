import type { Metric } from "@/api/types";

interface Point {
  at: number;
  step: number;
  attempt: number;
}

const AT = ({ at }: Point) => at;
const STEP = ({ step }: Point) => step;
const toUnixSeconds = (iso: string) => new Date(iso).getTime() / 1000;

/** The step that training had reached at a moment (unix seconds): null before the first one that was reported. */
export function findStepAt(metrics: Metric[]): (at: number) => number | null {
  const known = buildPoints(metrics);
  return (at) => known[findFirstIndex(known, (point) => point.at > at) - 1]?.step ?? null;
}

/** Where on the axis of time round steps stand, at most `most` of them between two moments. A step that was done again
 * stands where it was done for good. */
export function computeStepTicks(
  metrics: Metric[],
): (from: number, to: number, most: number) => { at: number; step: number }[] {
  const kept = removeRepeatedSteps(buildPoints(metrics));
  const stepOf = (at: number): number | undefined => {
    const next = findFirstIndex(kept, (point) => point.at >= at);
    return selectBetween(kept[next - 1], kept[next], AT, STEP, at);
  };
  const placeOf = (step: number): number | undefined => {
    const next = findFirstIndex(kept, (point) => point.step >= step);
    return selectBetween(kept[next - 1], kept[next], STEP, AT, step);
  };
  return (from, to, most) => {
    const [first, last] = [kept[0], kept.at(-1)];
    if (!first || !last || to < first.at || from > last.at) return [];
    const lowest = stepOf(from) ?? first.step;
    const highest = stepOf(to) ?? last.step;
    const each = roundUp((highest - lowest) / Math.max(1, most));
    const ticks: { at: number; step: number }[] = [];
    for (let step = Math.ceil(lowest / each) * each; step <= highest; step += each) {
      const at = placeOf(step);
      const apart = at === undefined ? 0 : at - (ticks.at(-1)?.at ?? -Infinity);
      if (at !== undefined && at >= from && at <= to && apart >= (to - from) / most) ticks.push({ at, step });
    }
    return ticks;
  };
}

/** 1, 2 or 5 times a power of ten. */
function roundUp(number: number): number {
  if (number <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(number));
  return ([1, 2, 5].find((times) => times * power >= number) ?? 10) * power;
}

function buildPoints(metrics: Metric[]): Point[] {
  const rank = metrics.reduce((least, metric) => Math.min(least, metric.rank), Infinity);
  return metrics
    .filter((metric) => metric.rank === rank)
    .map(({ at, step, attempt }) => ({ at: toUnixSeconds(at), step, attempt }))
    .sort((a, b) => a.at - b.at);
}

/** Without what a later attempt did again. */
function removeRepeatedSteps(points: Point[]): Point[] {
  const kept: Point[] = [];
  let next = Infinity;
  points.toReversed().forEach((point, place, all) => {
    if (point.step < next) {
      const after = all[place - 1];
      const last = { ...point, step: next - 1 };
      const at =
        after?.attempt === point.attempt && after.step > last.step && selectBetween(point, after, STEP, AT, last.step);
      if (at && last.step > point.step) kept.push({ ...last, at });
      kept.push(point);
      next = point.step;
    }
  });
  return kept.reverse();
}

/** Of points in order, the first of which something is true. */
function findFirstIndex(points: Point[], is: (point: Point) => boolean): number {
  let low = 0;
  let high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const point = points[middle];
    if (point && is(point)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Between two attempts nothing was done: what the next one begins with counts. */
function selectBetween(
  before: Point | undefined,
  after: Point | undefined,
  x: (point: Point) => number,
  y: (point: Point) => number,
  at: number,
): number | undefined {
  if (!after) return undefined;
  if (x(after) === at || !before) return x(after) === at ? y(after) : undefined;
  if (before.attempt !== after.attempt) return y(after);
  return y(before) + ((y(after) - y(before)) * (at - x(before))) / (x(after) - x(before));
}

/** What was printed, with nothing between two attempts: unix seconds, and values at them. */
export function alignMetric(metrics: Metric[], name: string): { moments: number[]; values: (number | null)[] } {
  const rank = metrics.reduce(
    (least, { rank, values }) => (values[name] == null ? least : Math.min(least, rank)),
    Infinity,
  );
  const mine = metrics
    .filter((metric) => metric.rank === rank && Number.isFinite(metric.values[name]))
    .map(({ at, attempt, values }) => ({ at: toUnixSeconds(at), attempt, value: values[name] ?? null }))
    .sort((a, b) => a.at - b.at);
  const moments: number[] = [];
  const values: (number | null)[] = [];
  mine.forEach(({ at, attempt, value }, place) => {
    const before = mine[place - 1];
    if (before && before.attempt !== attempt) {
      moments.push((before.at + at) / 2);
      values.push(null);
    }
    moments.push(at);
    values.push(value);
  });
  return { moments, values };
}

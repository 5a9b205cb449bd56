import type { Metric } from "@/api/types";

interface Point {
  at: number;
  step: number;
  attempt: number;
}

const AT = ({ at }: Point) => at;
const STEP = ({ step }: Point) => step;
const toUnixSeconds = (iso: string) => new Date(iso).getTime() / 1000;

/** Returns a function that gives the training step at a time (unix seconds); null before the first. */
export function findStepAt(metrics: Metric[]): (at: number) => number | null {
  const known = buildPoints(metrics);
  return (at) => known[findFirstIndex(known, (point) => point.at > at) - 1]?.step ?? null;
}

/** Returns at most `most` round steps between two times, with the times at which they were reached for good. */
export function computeStepTicks(
  metrics: Metric[],
): (from: number, to: number, most: number) => { at: number; step: number }[] {
  const stored = removeRepeatedSteps(buildPoints(metrics));
  const stepOf = (at: number): number | undefined => {
    const next = findFirstIndex(stored, (point) => point.at >= at);
    return interpolate(stored[next - 1], stored[next], AT, STEP, at);
  };
  const placeOf = (step: number): number | undefined => {
    const next = findFirstIndex(stored, (point) => point.step >= step);
    return interpolate(stored[next - 1], stored[next], STEP, AT, step);
  };
  return (from, to, most) => {
    const [first, last] = [stored[0], stored.at(-1)];
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

/** Returns 1, 2 or 5 times a power of ten. */
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

/** Removes steps that a later attempt repeated. */
function removeRepeatedSteps(points: Point[]): Point[] {
  const stored: Point[] = [];
  let next = Infinity;
  points.toReversed().forEach((point, place, all) => {
    if (point.step < next) {
      const after = all[place - 1];
      const last = { ...point, step: next - 1 };
      const at =
        after?.attempt === point.attempt && after.step > last.step && interpolate(point, after, STEP, AT, last.step);
      if (at && last.step > point.step) stored.push({ ...last, at });
      stored.push(point);
      next = point.step;
    }
  });
  return stored.reverse();
}

/** Returns the index of the first of the sorted points for which `is` holds. */
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

/** Returns y at `at` by linear interpolation; between two attempts, the y of the later point. */
function interpolate(
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

/** Returns a metric over time (unix seconds), with gaps between attempts. */
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

import type { TelemetrySeries } from "@/api/types";
import { getPanelConfig, type PanelId } from "./metrics";

export type Values = (number | null)[];

export interface ChartLine {
  key: string;
  values: Values;
  /** One series; or of all the maximum, 90th percentile, median, 10th percentile or minimum. */
  role: "line" | "most" | "high" | "middle" | "low" | "least";
  series?: TelemetrySeries;
  /** Returns the series that has the value at an index. */
  whose?: (at: number) => TelemetrySeries | undefined;
}

export interface Panel {
  id: PanelId;
  unit: string;
  drawn: ChartLine[];
  /** Number of series. */
  count: number;
  /** They are of several nodes. */
  nodes: boolean;
}

/** More series are drawn as a band. */
export const MAX_LINES = 16;

/** Returns the charts that have data, in their order. `alone`: a rank that is drawn as a line of its own. */
export function buildPanels(series: TelemetrySeries[], ids: PanelId[], alone?: number): Panel[] {
  const text = series.filter(({ values }) => values.some((value) => value != null));
  return ids.flatMap((id) => {
    const { metrics, oneOf } = getPanelConfig(id);
    const first = metrics.find((metric) => text.some((one) => one.metric === metric));
    const known = text.filter(({ metric }) => (oneOf ? metric === first : metrics.includes(metric)));
    if (!known[0]) return [];
    const nodes = new Set(known.map(({ node }) => node)).size > 1;
    return [{ id, unit: known[0].unit, drawn: buildLines(known, alone), count: known.length, nodes }];
  });
}

function buildLines(series: TelemetrySeries[], alone: number | undefined): ChartLine[] {
  const line = (one: TelemetrySeries): ChartLine => ({
    key: buildSeriesKey(one),
    values: one.values,
    role: "line",
    series: one,
  });
  if (series.length <= MAX_LINES) return series.map(line);
  const single = series.filter((one) => alone !== undefined && one.rank === alone);
  return [...computeBand(series), ...single.map(line)];
}

const buildSeriesKey = ({ metric, node, rank, index }: TelemetrySeries): string =>
  [metric, node, rank, index].join(" ");

/** Returns five lines that summarize all series, in time linear in the number of values. */
export function computeBand(series: TelemetrySeries[]): ChartLine[] {
  const length = series[0]?.values.length ?? 0;
  const known = new Float64Array(series.length);
  const lines = { most: [], high: [], middle: [], low: [], least: [] } as Record<
    Exclude<ChartLine["role"], "line">,
    Values
  >;
  const [largest, smallest] = [new Int32Array(length).fill(-1), new Int32Array(length).fill(-1)];
  for (let at = 0; at < length; at++) {
    let count = 0;
    let [most, least] = [-Infinity, Infinity];
    series.forEach(({ values }, one) => {
      const value = values[at];
      if (value == null) return;
      known[count++] = value;
      if (value > most) [most, largest[at]] = [value, one];
      if (value < least) [least, smallest[at]] = [value, one];
    });
    const tenth = Math.floor(count / 10);
    const place = { low: tenth, middle: count >> 1, high: count - 1 - tenth };
    lines.most.push(count ? most : null);
    lines.least.push(count ? least : null);
    lines.low.push(count ? selectNth(known, 0, count, place.low) : null);
    lines.middle.push(count ? selectNth(known, place.low, count, place.middle) : null);
    lines.high.push(count ? selectNth(known, place.middle, count, place.high) : null);
  }
  const of = (places: Int32Array) => (at: number) => series[places[at] ?? -1];
  return [
    { key: "most", role: "most", values: lines.most, whose: of(largest) },
    { key: "high", role: "high", values: lines.high },
    { key: "middle", role: "middle", values: lines.middle },
    { key: "low", role: "low", values: lines.low },
    { key: "least", role: "least", values: lines.least, whose: of(smallest) },
  ];
}

/**
 * Returns the value at index `place` if [from, until) were sorted; partitions it so that no larger value is before
 * (quickselect).
 */
function selectNth(values: Float64Array, from: number, until: number, place: number): number {
  let low = from;
  let high = until - 1;
  const of = (at: number) => values[at] ?? 0;
  while (low < high) {
    const pivot = of((low + high) >> 1);
    let [left, right] = [low, high];
    while (left <= right) {
      while (of(left) < pivot) left++;
      while (of(right) > pivot) right--;
      if (left > right) break;
      const larger = of(left);
      values[left++] = of(right);
      values[right--] = larger;
    }
    if (place <= right) high = right;
    else if (place >= left) low = left;
    else break;
  }
  return of(place);
}

/** Returns the unix seconds of an answer's values. */
export function buildTimestamps(from: string, stepSeconds: number, count: number): number[] {
  const first = new Date(from).getTime() / 1000;
  return Array.from({ length: count }, (_, at) => first + at * stepSeconds);
}

/** Shorter gaps are normal between samples. */
const MIN_GAP_S = 60;

/** Returns the ranges without any sample. */
export function findGaps(series: TelemetrySeries[], moments: number[], until: number): [number, number][] {
  const found: [number, number][] = [];
  let since: number | undefined;
  const end = (at: number, step: number) => {
    if (since !== undefined && at - since > Math.max(MIN_GAP_S, step)) found.push([since, at]);
    since = undefined;
  };
  const step = (moments[1] ?? until) - (moments[0] ?? 0);
  moments.forEach((moment, at) => {
    if (series.some(({ values }) => values[at] != null)) end(moment, step);
    else since ??= moment;
  });
  end(until, step);
  return found;
}

/** How many steps a line's newest value may be older than the newest of all. */
const MAX_LAG_STEPS = 4;

/** Returns the index of the newest value of all lines. */
export const findNewestIndex = (lines: Values[]): number =>
  Math.max(-1, ...lines.map((values) => values.findLastIndex((value) => value != null)));

/** Returns the value of a line at an index; if it is the newest one, a slightly older value if need be. */
export function getValueAt(values: Values, at: number, newest: boolean): number | null {
  const value = values[at] ?? null;
  if (value !== null || !newest) return value;
  return values.slice(Math.max(0, at - MAX_LAG_STEPS), Math.max(0, at)).findLast((each) => each != null) ?? null;
}

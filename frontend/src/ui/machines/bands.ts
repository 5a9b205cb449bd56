import type { MetricName } from "@/api/telemetry";
import type { Metric, TelemetrySeries } from "@/api/types";

type Values = (number | null)[];

export interface Drawn {
  key: string;
  values: Values;
  /** The middle of all, the least and the largest of all, or one series by itself. */
  role: "line" | "middle" | "least" | "most";
  series?: TelemetrySeries;
}

export interface Panel {
  id: PanelId;
  unit: string;
  drawn: Drawn[];
  /** How many series are behind it. */
  count: number;
}

/** More lines than this are a band of all of them. */
export const MOST_LINES = 16;

const PANELS = {
  gpu: ["gpu"],
  gpuMemory: ["gpu_memory"],
  power: ["power"],
  temperature: ["temperature"],
  cpu: ["rank_cpu", "cpu"],
  memory: ["rank_memory", "memory"],
  network: ["received", "sent"],
  disk: ["disk_read", "disk_written"],
} as const satisfies Record<string, MetricName[]>;

export type PanelId = keyof typeof PANELS;
export const PANEL_IDS = Object.keys(PANELS) as PanelId[];

export const metricsOf = (panels: PanelId[]): MetricName[] => panels.flatMap((panel) => PANELS[panel]);

/** What was measured, as charts: those that say something, in their order. `alone`: a rank that is singled out. */
export function panelsOf(series: TelemetrySeries[], alone?: number): Panel[] {
  return PANEL_IDS.flatMap((id) => {
    const metrics: readonly MetricName[] = PANELS[id];
    const first = metrics.find((metric) => series.some((one) => one.metric === metric));
    const ofRanks = id === "cpu" || id === "memory"; // of ranks where there are any, else of the node
    const mine = series.filter((one) => (ofRanks ? one.metric === first : metrics.includes(one.metric)));
    const known = mine.filter((one) => one.values.some((value) => value != null));
    if (!known[0]) return [];
    return [{ id, unit: known[0].unit, drawn: drawn(known, alone), count: known.length }];
  });
}

function drawn(series: TelemetrySeries[], alone: number | undefined): Drawn[] {
  const line = (one: TelemetrySeries): Drawn => ({ key: keyOf(one), values: one.values, role: "line", series: one });
  if (series.length <= MOST_LINES) return series.map(line);
  const single = series.filter((one) => alone !== undefined && one.rank === alone);
  return [...band(series), ...single.map(line)];
}

export const keyOf = ({ metric, node, rank, index }: TelemetrySeries): string => [metric, node, rank, index].join(" ");

/** The least, the middle and the largest of all at each moment. */
export function band(series: TelemetrySeries[]): Drawn[] {
  const length = series[0]?.values.length ?? 0;
  const least: Values = [];
  const middle: Values = [];
  const most: Values = [];
  for (let at = 0; at < length; at++) {
    const known = series.flatMap((one) => one.values[at] ?? []).sort((a, b) => a - b);
    least.push(known[0] ?? null);
    middle.push(known[Math.floor(known.length / 2)] ?? null);
    most.push(known.at(-1) ?? null);
  }
  return [
    { key: "most", values: most, role: "most" },
    { key: "least", values: least, role: "least" },
    { key: "middle", values: middle, role: "middle" },
  ];
}

/** Unix seconds of the values of an answer. */
export function moments(from: string, stepSeconds: number, count: number): number[] {
  const first = new Date(from).getTime() / 1000;
  return Array.from({ length: count }, (_, at) => first + at * stepSeconds);
}

/** The step that training had reached at a moment (unix seconds): null before the first one that was reported. */
export function stepsAt(metrics: Metric[]): (at: number) => number | null {
  const known = metrics
    .map(({ at, step }) => ({ at: new Date(at).getTime() / 1000, step }))
    .sort((a, b) => a.at - b.at);
  return (at) => {
    let low = 0;
    let high = known.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((known[middle]?.at ?? 0) <= at) low = middle + 1;
      else high = middle;
    }
    return known[low - 1]?.step ?? null;
  };
}

/** What was printed, on the moments of what was measured: the newest at each. */
export function onMoments(metrics: Metric[], name: string, moments: number[]): Values {
  const step = (moments[1] ?? 0) - (moments[0] ?? 0);
  const values: Values = moments.map(() => null);
  for (const metric of metrics) {
    const at = Math.floor((new Date(metric.at).getTime() / 1000 - (moments[0] ?? 0)) / (step || 1));
    const value = metric.values[name];
    if (at >= 0 && at < values.length && value != null && Number.isFinite(value)) values[at] = value;
  }
  return values;
}

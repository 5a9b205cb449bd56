import type { RankProgress, Rank, RankUsage, Task, TaskNode } from "@/api/types";

/** Everything known of a rank now. */
export interface RankSnapshot {
  rank: Rank;
  node: TaskNode | undefined;
  pulse: RankProgress | undefined;
  use: RankUsage | undefined;
  /** Steps behind the foremost rank. */
  lag: number | null;
}

/** Numeric metrics of a rank. */
const METRICS = {
  gpu: ({ use }) => use?.gpu,
  gpuMemory: ({ use, pulse }) => use?.gpuMemory ?? pulse?.gpuBytes,
  power: ({ use }) => use?.power,
  temperature: ({ use }) => use?.temperature,
  cpu: ({ use }) => use?.cpu,
  memory: ({ use, pulse }) => use?.memory ?? pulse?.rssBytes,
  lag: ({ lag }) => lag,
  silent: ({ pulse }) => pulse?.sinceStep,
} satisfies Record<string, (seen: RankSnapshot) => number | null | undefined>;

export type RankMetric = keyof typeof METRICS;
export type ColorBy = "state" | RankMetric;
export const RANK_METRICS = Object.keys(METRICS) as RankMetric[];

export const getMetricValue = (amount: RankMetric, seen: RankSnapshot): number | null => METRICS[amount](seen) ?? null;

export function buildRankSnapshots(
  task: Pick<Task, "ranks" | "nodes">,
  pulses: RankProgress[],
  uses: RankUsage[],
): RankSnapshot[] {
  const nodes = new Map(task.nodes.map((node) => [node.nodeRank, node]));
  const pulseOf = new Map(pulses.map((pulse) => [pulse.rank, pulse]));
  const useOf = new Map(uses.map((use) => [use.rank, use]));
  const lags = computeLags(pulses);
  return task.ranks.map((rank) => ({
    rank,
    node: nodes.get(rank.nodeRank),
    pulse: pulseOf.get(rank.rank),
    use: useOf.get(rank.rank),
    lag: lags.get(rank.rank) ?? null,
  }));
}

/**
 * Returns how many steps each rank is behind the foremost. Nodes report at different times: steps that the foremost
 * made since another node's report do not count.
 */
export function computeLags(pulses: RankProgress[]): Map<number, number> {
  const stepping = pulses.filter((pulse) => pulse.step != null);
  const foremost = stepping.reduce<RankProgress | undefined>(
    (most, pulse) => (most && (most.step ?? 0) >= (pulse.step ?? 0) ? most : pulse),
    undefined,
  );
  return new Map(
    stepping.map((pulse) => {
      const later = foremost ? (Date.parse(foremost.at) - Date.parse(pulse.at)) / 1000 : 0;
      const meanwhile = foremost?.stepSeconds ? Math.max(0, later / foremost.stepSeconds) : 0;
      const behind = (foremost?.step ?? 0) - (pulse.step ?? 0) - meanwhile;
      return [pulse.rank, Math.max(0, Math.round(behind))];
    }),
  );
}

export interface Scale {
  from: number;
  to: number;
}

/** Returns the range of the colour scale: round, and wide enough that noise shows no difference. */
export function computeScale(amount: RankMetric, all: RankSnapshot[]): Scale {
  const values = all.flatMap((seen) => getMetricValue(amount, seen) ?? []);
  const least = Math.min(...values);
  const most = Math.max(...values);
  switch (amount) {
    case "gpu":
      return { from: 0, to: 100 };
    case "gpuMemory": {
      const totals = all.flatMap(({ use }) => use?.gpuMemoryTotal ?? []);
      return { from: 0, to: Math.max(most, ...totals) };
    }
    case "temperature": {
      const from = Math.floor(least / 10) * 10;
      return { from, to: Math.max(Math.ceil(most / 10) * 10, from + 20) };
    }
    case "cpu":
      return { from: 0, to: Math.max(100, Math.ceil(most / 100) * 100) };
    case "memory":
      return { from: 0, to: most };
    default:
      return { from: 0, to: Math.max(10, roundUp(most)) };
  }
}

/** Returns the next of 1, 2, 5, 10, 20, 50 … */
function roundUp(value: number): number {
  if (value <= 0) return 0;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 2, 5, 10].find((each) => value <= each * power) ?? 10);
}

export const LEVELS = 8;

/** Returns the colour level of a value. */
export function getScaleLevel(value: number, { from, to }: Scale): number {
  if (to <= from) return 0;
  const share = (value - from) / (to - from);
  return Math.min(LEVELS - 1, Math.max(0, Math.floor(share * LEVELS)));
}

/** Removes the words that all names begin with. */
export function shortenNames(names: string[]): string[] {
  const [first = ""] = names;
  let same = names.length > 1 ? first.length : 0;
  for (const name of names) while (!name.startsWith(first.slice(0, same))) same--;
  const word = first.slice(0, same).search(/[^\p{L}\p{N}][\p{L}\p{N}]*$/u) + 1;
  return names.map((name) => name.slice(word) || name);
}

/** Formats ranks: 0–7, 9. */
export function formatRankSpans(numbers: number[]): string {
  const spans: [number, number][] = [];
  for (const number of numbers.toSorted((a, b) => a - b)) {
    const last = spans.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else spans.push([number, number]);
  }
  return spans.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(", ");
}

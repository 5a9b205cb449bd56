import type { RankProgress, RankUsage } from "@/api/types";
import type { RankSnapshot } from "./rank-metrics";

export function pulse(rank: number, over: Partial<RankProgress> = {}): RankProgress {
  return {
    rank,
    at: "2026-11-21T05:00:00Z",
    phase: "running",
    step: 100,
    steppedAt: "2026-11-21T05:00:00Z",
    sinceStep: 0.4,
    stepSeconds: 0.25,
    waitingShare: 0.1,
    printedAt: null,
    gpuBytes: null,
    rssBytes: null,
    cpu: null,
    ...over,
  };
}

export function used(rank: number, over: Partial<RankUsage> = {}): RankUsage {
  return {
    rank,
    gpu: null,
    gpuMemory: null,
    gpuMemoryTotal: null,
    power: null,
    temperature: null,
    cpu: null,
    memory: null,
    ...over,
  };
}

/** Returns a running rank, four per node. */
export function seen(rank: number, over: Partial<Omit<RankSnapshot, "rank">> = {}): RankSnapshot {
  const nodeRank = Math.floor(rank / 4);
  return {
    rank: {
      rank,
      localRank: rank % 4,
      nodeRank,
      device: rank % 4,
      state: "running",
      pid: 100 + rank,
      exitCode: null,
      ending: null,
    },
    node: undefined,
    pulse: undefined,
    use: undefined,
    lag: null,
    ...over,
  };
}

import type { Environment } from "@/api/types";

export interface Aggregate {
  nodeCount: number;
  totalGpus: number;
  /** One process per GPU, and one on a node that has none. */
  worldSize: number;
  totalCpus: number;
  totalMemoryGb: number;
  gpuTypes: string[];
  zones: string[];
  crossZone: boolean;
  isDistributed: boolean;
}

/** What the chosen environments add up to, without a round trip. */
export function aggregate(environments: Environment[]): Aggregate {
  const sum = (of: (environment: Environment) => number) => environments.reduce((total, each) => total + of(each), 0);
  const zones = distinct(environments.map((each) => each.zone.name));
  return {
    nodeCount: environments.length,
    totalGpus: sum((each) => each.gpuCount),
    worldSize: sum(processes),
    totalCpus: sum((each) => each.cpuCores),
    totalMemoryGb: sum((each) => each.memoryGb),
    gpuTypes: distinct(environments.map((each) => each.gpuType)),
    zones,
    crossZone: zones.length > 1,
    isDistributed: environments.length > 1,
  };
}

function processes(environment: Environment): number {
  return Math.max(environment.gpuCount, 1);
}

/** Empty texts say nothing. */
function distinct(values: string[]): string[] {
  return [...new Set(values.filter(Boolean))];
}

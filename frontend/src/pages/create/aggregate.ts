import type { Environment } from "@/api/types";

export interface EnvironmentTotals {
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
export function sumEnvironments(environments: Environment[]): EnvironmentTotals {
  const sum = (of: (environment: Environment) => number) => environments.reduce((total, each) => total + of(each), 0);
  const zones = listDistinct(environments.map((each) => each.zone.name));
  return {
    nodeCount: environments.length,
    totalGpus: sum((each) => each.gpuCount),
    worldSize: sum(countProcesses),
    totalCpus: sum((each) => each.cpuCores),
    totalMemoryGb: sum((each) => each.memoryGb),
    gpuTypes: listDistinct(environments.map((each) => each.gpuType)),
    zones,
    crossZone: zones.length > 1,
    isDistributed: environments.length > 1,
  };
}

function countProcesses(environment: Environment): number {
  return Math.max(environment.gpuCount, 1);
}

/** Empty texts say nothing. */
function listDistinct(values: string[]): string[] {
  return [...new Set(values.filter(Boolean))];
}

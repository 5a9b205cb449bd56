import type { Environment } from "@/api/types";

export interface EnvironmentTotals {
  nodeCount: number;
  totalGpus: number;
  /** One process per GPU; one on a node without GPUs. */
  worldSize: number;
  totalCpus: number;
  totalMemoryGb: number;
  gpuTypes: string[];
  zones: string[];
  crossZone: boolean;
  isDistributed: boolean;
}

/** Returns the totals of the chosen environments. */
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

/** Returns the distinct values that are not empty. */
function listDistinct(values: string[]): string[] {
  return [...new Set(values.filter(Boolean))];
}

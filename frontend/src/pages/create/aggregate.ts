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

/** A code, and what fills the blanks of its text. */
export interface Found {
  code: WarningCode;
  params: Record<string, string | number>;
}

export const WARNING_CODES = [
  "CROSS_ZONE",
  "GPU_TYPES_DIFFER",
  "VERSIONS_DIFFER",
  "MASTER_NOT_BEST",
  "EMULATED_GPUS",
] as const;
export type WarningCode = (typeof WARNING_CODES)[number];

export function isWarningCode(code: string): code is WarningCode {
  return (WARNING_CODES as readonly string[]).includes(code);
}

/**
 * What the chosen environments add up to, without a round trip. This and `warnings` are the rules of
 * platform/fermi/launch/summary.py; tests/shared/summaries.json holds both to the same answers.
 */
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

/** `master` is an environment's id; without one nothing is said about it. */
export function warnings(environments: Environment[], master: string): Found[] {
  const found: Found[] = [];
  const zones = distinct(environments.map((each) => each.zone.name));
  const types = distinct(environments.map((each) => each.gpuType || "CPU"));
  const versions = differingVersions(environments);
  const better = betterMaster(environments, master);
  const emulated = environments.filter((each) => each.emulated).map((each) => each.name);
  if (zones.length > 1) found.push({ code: "CROSS_ZONE", params: { zones: zones.join(", ") } });
  if (types.length > 1) found.push({ code: "GPU_TYPES_DIFFER", params: { types: types.join(", ") } });
  if (versions.length > 0) found.push({ code: "VERSIONS_DIFFER", params: { versions: versions.join("; ") } });
  if (better) found.push(better);
  if (emulated.length > 0) found.push({ code: "EMULATED_GPUS", params: { environments: emulated.join(", ") } });
  return found;
}

function processes(environment: Environment): number {
  return Math.max(environment.gpuCount, 1);
}

/** `torch 2.4 / 2.5`, for what more than one environment states. */
function differingVersions(environments: Environment[]): string[] {
  return distinct(environments.flatMap((each) => Object.keys(each.versions)))
    .map((name) => ({ name, stated: distinct(environments.map((each) => each.versions[name] ?? "")) }))
    .filter(({ stated }) => stated.length > 1)
    .map(({ name, stated }) => `${name} ${stated.join(" / ")}`);
}

/** Most traffic to the master should stay in its zone, so it belongs where most of the processes are. */
function betterMaster(environments: Environment[], master: string): Found | undefined {
  const chosen = environments.find((each) => each.id === master);
  if (!chosen) return undefined;
  const weights = new Map<string, number>();
  for (const each of environments) weights.set(each.zone.name, (weights.get(each.zone.name) ?? 0) + processes(each));
  const [best, most] = [...weights].reduce((a, b) => (b[1] > a[1] ? b : a));
  const zone = chosen.zone.name;
  const gpus = weights.get(zone) ?? 0;
  if (gpus === most) return undefined;
  return { code: "MASTER_NOT_BEST", params: { master: chosen.name, zone, gpus, best, most } };
}

/** Empty texts say nothing. */
function distinct(values: string[]): string[] {
  return [...new Set(values.filter(Boolean))];
}

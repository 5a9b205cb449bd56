import type { Environment } from "@/api/types";

export const SORT_ORDERS = ["name", "gpuCount", "uptime", "zone"] as const;

/** Filters; empty = any. */
export interface FilterOption {
  search: string;
  /** A zone id. */
  zone: string;
  status: string;
  gpuType: string;
  kind: string;
  sort: (typeof SORT_ORDERS)[number];
}

export type EnvironmentFilter = "zone" | "status" | "gpuType" | "kind";

export const NO_FILTER: FilterOption = { search: "", zone: "", status: "", gpuType: "", kind: "", sort: "name" };

/** The `gpuType` of environments without GPUs. */
export const NO_GPU = "-";

const collator = new Intl.Collator("zh", { numeric: true });
const byName = (a: Environment, b: Environment) => collator.compare(a.name, b.name);
const ORDER: Record<FilterOption["sort"], (a: Environment, b: Environment) => number> = {
  name: byName,
  gpuCount: (a, b) => b.gpuCount - a.gpuCount || byName(a, b),
  uptime: (a, b) => (b.uptimeSeconds ?? -1) - (a.uptimeSeconds ?? -1) || byName(a, b),
  zone: (a, b) => collator.compare(a.zone.name, b.zone.name) || byName(a, b),
};

/** Sorts environments. Those that cannot be selected come last. */
export function sortEnvironments(environments: Environment[], sort: FilterOption["sort"]): Environment[] {
  return environments.toSorted((a, b) => Number(b.selectable) - Number(a.selectable) || ORDER[sort](a, b));
}

export function filterEnvironments(environments: Environment[], choice: FilterOption): Environment[] {
  const needle = choice.search.trim().toLowerCase();
  return environments.filter(
    (each) =>
      (!choice.zone || each.zone.id === choice.zone) &&
      (!choice.status || each.status === choice.status) &&
      (!choice.gpuType || (each.gpuType || NO_GPU) === choice.gpuType) &&
      (!choice.kind || each.kind === choice.kind) &&
      (!needle || searchable(each).includes(needle)),
  );
}

const texts = new WeakMap<Environment, string>();

function searchable(each: Environment): string {
  let text = texts.get(each);
  if (text === undefined) {
    text = [each.name, each.id, each.stack, each.gpuType, each.zone.name].join("\n").toLowerCase();
    texts.set(each, text);
  }
  return text;
}

/** Returns the values of each filter; for zones with their names. */
export function listFilterOptions(
  environments: Environment[],
): Record<EnvironmentFilter, [value: string, name: string][]> {
  const of = (pair: (environment: Environment) => [string, string]) =>
    [...new Map(environments.map(pair))].sort(([, a], [, b]) => collator.compare(a, b));
  return {
    zone: of(({ zone }) => [zone.id, zone.name]),
    status: of(({ status }) => [status, status]),
    gpuType: of(({ gpuType }) => [gpuType || NO_GPU, gpuType]),
    kind: of(({ kind }) => [kind, kind]),
  };
}

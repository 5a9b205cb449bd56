import type { CreateRequest } from "@/api/types";
import { parseNumber } from "@/lib/parse-input";

type Select = NonNullable<NonNullable<CreateRequest["distributedConfig"]>["select"]>;

/** What is asked for in place of environments by name, as it stands in the form. */
export interface CapacityRequest {
  nodes: string;
  gpusPerNode: string;
  totalGpus: string;
  gpuTypes: string[];
  /** Ids. */
  zones: string[];
  sameZone: boolean;
  /** One NAME=value a line. */
  labels: string;
  /** Ids of environments that are not to be taken. */
  exclude: string[];
}

export const ANY_CAPACITY: CapacityRequest = {
  nodes: "",
  gpusPerNode: "",
  totalGpus: "",
  gpuTypes: [],
  zones: [],
  sameZone: false,
  labels: "",
  exclude: [],
};

const parsePairs = (lines: string): Record<string, string> =>
  Object.fromEntries(
    lines
      .split("\n")
      .map((line) => line.split("="))
      .filter(([name]) => name?.trim())
      .map(([name = "", ...value]) => [name.trim(), value.join("=").trim()]),
  );

const removeEmpty = (text: string) => (text.trim() === "" ? undefined : (parseNumber(text) as number));

/** Without what was left empty. */
export function buildSelect(capacity: CapacityRequest): Select {
  const labels = parsePairs(capacity.labels);
  const numbers = {
    nodes: removeEmpty(capacity.nodes),
    gpusPerNode: removeEmpty(capacity.gpusPerNode),
    totalGpus: removeEmpty(capacity.totalGpus),
  };
  return {
    ...(Object.fromEntries(Object.entries(numbers).filter(([, value]) => value !== undefined)) as Select),
    ...(capacity.gpuTypes.length > 0 && { gpuTypes: capacity.gpuTypes }),
    ...(capacity.zones.length > 0 && { zones: capacity.zones }),
    ...(capacity.sameZone && { sameZone: true }),
    ...(Object.keys(labels).length > 0 && { labels }),
    ...(capacity.exclude.length > 0 && { exclude: capacity.exclude }),
  };
}

export function parseSelect(select: Select): CapacityRequest {
  const text = (value: number | null | undefined) => (value == null ? "" : String(value));
  return {
    nodes: text(select.nodes),
    gpusPerNode: text(select.gpusPerNode),
    totalGpus: text(select.totalGpus),
    gpuTypes: select.gpuTypes ?? [],
    zones: select.zones ?? [],
    sameZone: select.sameZone ?? false,
    labels: Object.entries(select.labels ?? {})
      .map(([name, value]) => `${name}=${value}`)
      .join("\n"),
    exclude: select.exclude ?? [],
  };
}

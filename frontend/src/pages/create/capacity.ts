import type { CreateRequest } from "@/api/types";
import { parseNumber } from "@/lib/parse-input";

type Select = NonNullable<NonNullable<CreateRequest["distributedConfig"]>["select"]>;

/** Capacity to be requested instead of environments, as the form holds it. */
export interface CapacityRequest {
  nodes: string;
  gpusPerNode: string;
  totalGpus: string;
  gpuTypes: string[];
  /** Zone ids. */
  zones: string[];
  sameZone: boolean;
  /** One NAME=value per line. */
  labels: string;
  /** Ids of environments to exclude. */
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

const parseOptionalNumber = (text: string) => (text.trim() === "" ? undefined : (parseNumber(text) as number));

/** Returns the request without empty fields. */
export function buildSelect(capacity: CapacityRequest): Select {
  const labels = parsePairs(capacity.labels);
  const numbers = {
    nodes: parseOptionalNumber(capacity.nodes),
    gpusPerNode: parseOptionalNumber(capacity.gpusPerNode),
    totalGpus: parseOptionalNumber(capacity.totalGpus),
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

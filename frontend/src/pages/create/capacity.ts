import type { CreateRequest } from "@/api/types";
import { numberOr } from "@/lib/typed";

type Select = NonNullable<NonNullable<CreateRequest["distributedConfig"]>["select"]>;

/** What is asked for in place of environments by name, as it stands in the form. */
export interface Capacity {
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

export const ANY_CAPACITY: Capacity = {
  nodes: "",
  gpusPerNode: "",
  totalGpus: "",
  gpuTypes: [],
  zones: [],
  sameZone: false,
  labels: "",
  exclude: [],
};

const pairs = (lines: string): Record<string, string> =>
  Object.fromEntries(
    lines
      .split("\n")
      .map((line) => line.split("="))
      .filter(([name]) => name?.trim())
      .map(([name = "", ...value]) => [name.trim(), value.join("=").trim()]),
  );

const given = (text: string) => (text.trim() === "" ? undefined : (numberOr(text) as number));

/** Without what was left empty. */
export function selectOf(capacity: Capacity): Select {
  const labels = pairs(capacity.labels);
  const numbers = {
    nodes: given(capacity.nodes),
    gpusPerNode: given(capacity.gpusPerNode),
    totalGpus: given(capacity.totalGpus),
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

export function capacityOf(select: Select): Capacity {
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

import type { TFunction } from "i18next";
import type { Run, RunColumn } from "@/api/types";

/** What the table knows of a column that it shows. */
export interface ColumnInfo {
  name: string;
  label: string;
  kind: Exclude<RunColumn["kind"], "mixed">;
  group: RunColumn["group"];
  higherIsBetter: boolean | null;
  /** Pixels. */
  width: number;
}

export const COLUMN_GROUPS = ["task", "parameter", "metric", "cost"] as const satisfies RunColumn["group"][];

/** Which value of a curve a column has: `metric.loss.best` is the best value of `loss`. */
export const CURVE_VALUES = ["last", "best", "min", "max"] as const;
export type CurveValue = (typeof CURVE_VALUES)[number];

const CURVE = new RegExp(`^(metric\\..+?)(?:\\.(${CURVE_VALUES.join("|")}))?$`);

/** Splits the column of a curve; undefined for any other column. */
export function splitCurve(name: string): { base: string; value: CurveValue } | undefined {
  const [, base, value] = CURVE.exec(name) ?? [];
  return base ? { base, value: (value as CurveValue | undefined) ?? "last" } : undefined;
}

/** Returns the name of a column of the same curve. */
export const buildCurve = (base: string, value: CurveValue) => `${base}.${value}`;

/** Returns a column by the name that the platform has for it: a curve's last value is named so. */
export function normalizeColumn(name: string): string {
  const curve = splitCurve(name);
  return curve ? buildCurve(curve.base, curve.value) : name;
}

/** The groups of columns by the beginning of their names. */
const PREFIXES: [string, RunColumn["group"]][] = [
  ["param.", "parameter"],
  ["metric.", "metric"],
];

const WIDTHS: Record<ColumnInfo["kind"], number> = { number: 150, duration: 150, time: 130, choice: 130, text: 160 };
const SPECIAL_WIDTHS: Record<string, number> = { tag: 230, note: 260, name: 280 };

/** Columns of which the platform sorts by none. */
const UNSORTED = ["tag", "note"];

/**
 * Returns what is known of columns: as the platform describes them, or else by their names and the values that runs
 * have in them.
 */
export function describeColumns(t: TFunction, names: string[], known: RunColumn[], runs: Run[]): ColumnInfo[] {
  return names.map((name) => {
    const curve = splitCurve(name);
    const column =
      known.find((each) => each.name === name) ??
      known.find((each) => curve && splitCurve(each.name)?.base === curve.base);
    const [prefix, group] = PREFIXES.find(([begin]) => name.startsWith(begin)) ?? ["", "task" as const];
    const kind = readKind(column?.kind ?? (curve ? "number" : "mixed"), name, runs);
    const label = curve?.base.slice(prefix.length) ?? (prefix ? name.slice(prefix.length) : getFieldLabel(t, name));
    return {
      name,
      label: curve && curve.value !== "last" ? `${label} (${t(`runs.curve.${curve.value}`)})` : label,
      kind,
      group: column?.group ?? group,
      higherIsBetter: column?.higherIsBetter ?? null,
      width: SPECIAL_WIDTHS[name] ?? WIDTHS[kind],
    };
  });
}

/** The fields of a task that the console has names for, as the platform names them. */
const FIELDS = [
  "id",
  "name",
  "status",
  "reason",
  "framework",
  "project",
  "owner",
  "priority",
  "nodes",
  "gpus",
  "created",
  "started",
  "ended",
  "age",
  "duration",
  "environment",
  "zone",
  "gpuType",
  "cluster",
  "tag",
  "note",
  "archived",
  "code",
  "data",
  "model",
  "cost",
  "gpuHours",
  "goodput",
  "step",
  "loss",
  "attempts",
  "sweep",
] as const;

/** Returns the name of a field of a task; any other as it is. */
export function getFieldLabel(t: TFunction, name: string): string {
  const field = FIELDS.find((each) => each === name);
  return field ? t(`runs.fields.${field}`) : name;
}

/** Returns how the values of a column are shown. A parameter is a number where it is one in most runs that have it. */
function readKind(kind: RunColumn["kind"], name: string, runs: Run[]): Exclude<RunColumn["kind"], "mixed"> {
  if (kind !== "mixed") return kind;
  const values = runs.map((run) => run.values[name]).filter((value) => value != null);
  const numbers = values.filter((value) => typeof value === "number").length;
  return numbers > 0 && numbers * 2 >= values.length ? "number" : "text";
}

export const isNumeric = ({ kind }: Pick<ColumnInfo, "kind">) => kind === "number" || kind === "duration";

/** Returns the order that a first press on a heading asks for: the best, newest or largest first, texts from A. */
export function getFirstOrder({ name, kind, higherIsBetter }: ColumnInfo): string | undefined {
  if (UNSORTED.includes(name)) return undefined;
  const descends = isNumeric({ kind }) ? higherIsBetter !== false : kind === "time";
  return descends ? `-${name}` : name;
}

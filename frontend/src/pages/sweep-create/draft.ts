import type { CreateRequest, SweepBody } from "@/api/types";
import { parseNumber } from "@/lib/parse-input";
import { formatDateTimeInput } from "@/lib/dates";
import { type Passing, bindParameters, listArguments } from "./arguments";
import { type Value, formatValue, formatValues, parseValue, parseValues } from "./values";

export const KINDS = ["values", "float", "int", "value"] as const;
export type Kind = (typeof KINDS)[number];

export interface Condition {
  name: string;
  values: string;
}

/** A parameter of the form, as texts. */
export interface ParameterDraft {
  key: number;
  name: string;
  kind: Kind;
  /** The choices, or the one value. */
  values: string;
  min: string;
  max: string;
  step: string;
  log: boolean;
  conditions: Condition[];
}

export type Goal = "minimize" | "maximize";

/** The form's state: texts where a person types. */
export interface SweepDraft {
  name: string;
  metric: string;
  /** Empty: as the platform's rule for the metric says. */
  goal: "" | Goal;
  value: string;
  target: string;
  method: string;
  parameters: ParameterDraft[];
  pruning: Record<"method" | "minSteps" | "maxSteps" | "reduction" | "interval" | "startTrials", string>;
  budget: Record<"trials" | "gpuHours" | "cost" | "endsAt", string>;
  parallel: string;
  priority: string;
  preemptible: boolean;
  passing: Passing;
  /** The task that each trial is; null: not chosen yet. */
  request: Partial<CreateRequest> | null;
}

export const EMPTY_SWEEP: SweepDraft = {
  name: "",
  metric: "",
  goal: "",
  value: "best",
  target: "",
  method: "tpe",
  parameters: [],
  pruning: { method: "none", minSteps: "", maxSteps: "", reduction: "", interval: "", startTrials: "" },
  budget: { trials: "20", gpuHours: "", cost: "", endsAt: "" },
  parallel: "4",
  priority: "low",
  preemptible: true,
  passing: "flags",
  request: null,
};

const SETTINGS_OF_PRUNING = {
  asha: ["minSteps", "maxSteps", "reduction"],
  median: ["minSteps", "interval", "startTrials"],
} as const;

export const listPruningSettings = (method: string) =>
  method === "asha" || method === "median" ? SETTINGS_OF_PRUNING[method] : [];

/** Returns the texts that are filled in, as numbers where they are some. */
function readNumbers(fields: Record<string, string>): Record<string, number | string> {
  return Object.fromEntries(
    Object.entries(fields)
      .filter(([, text]) => text.trim() !== "")
      .map(([name, text]) => [name, parseNumber(text.trim())]),
  );
}

/** Returns the body for POST /sweeps. `rule`: the goal that the metric's name tells. Wrong numbers are sent as typed, so that the platform says what is wrong. */
export function buildSweep(draft: SweepDraft, rule: Goal | undefined): SweepBody {
  const { pruning, budget, parameters } = draft;
  const { endsAt, ...amounts } = budget;
  const end = endsAt ? new Date(endsAt) : undefined;
  const settings = listPruningSettings(pruning.method);
  const passed = parameters.map(({ name, conditions }) => ({ name: name.trim(), conditional: conditions.length > 0 }));
  return {
    name: draft.name,
    objective: {
      metric: draft.metric,
      goal: draft.goal || rule || "minimize",
      value: draft.value,
      ...readNumbers({ target: draft.target }),
    },
    method: draft.method,
    parameters: Object.fromEntries(parameters.map((each) => [each.name.trim(), buildParameter(each)])),
    ...(settings.length > 0 && {
      pruning: {
        method: pruning.method,
        ...readNumbers(Object.fromEntries(settings.map((name) => [name, pruning[name]]))),
      },
    }),
    budget: {
      ...readNumbers(amounts),
      ...(end && { endsAt: Number.isNaN(end.getTime()) ? endsAt : end.toISOString() }),
    },
    ...readNumbers({ parallel: draft.parallel }),
    request: draft.request
      ? {
          ...bindParameters(draft.request, passed, draft.passing),
          priority: draft.priority,
          preemptible: draft.preemptible,
        }
      : {},
  } as SweepBody;
}

function buildParameter({ kind, values, min, max, step, log, conditions }: ParameterDraft): object {
  const when = Object.fromEntries(
    conditions.filter(({ name }) => name).map(({ name, values }) => [name, parseValues(values)]),
  );
  return {
    ...(kind === "values" && { values: parseValues(values) }),
    ...(kind === "value" && { value: parseValue(values) }),
    ...((kind === "int" || kind === "float") && {
      ...readNumbers({ min, max, step }),
      ...(kind === "int" && { type: kind }),
      ...(log && { scale: "log" }),
    }),
    ...(Object.keys(when).length > 0 && { when }),
  };
}

/** Fields of a task's request that the form sets. */
const SET_FIELDS = ["priority", "preemptible"];

const omitFields = (request: Partial<CreateRequest>, names: string[]): Partial<CreateRequest> =>
  Object.fromEntries(Object.entries(request).filter(([name]) => !names.includes(name)));

/** Returns a task's request as that of trials, which do not go on from its checkpoint. */
export const pickTrialRequest = (request: Partial<CreateRequest>): Partial<CreateRequest> =>
  omitFields(request, [...SET_FIELDS, "resumeFrom"]);

const asText = (value: unknown) => (typeof value === "string" ? value : value == null ? "" : JSON.stringify(value));
const asTable = (value: unknown): Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
const asList = (value: unknown): unknown[] => (Array.isArray(value) ? (value as unknown[]) : [value]);

/**
 * Returns the draft with what a file says; what it does not say stays. A request of the file is added to the one that
 * was chosen.
 */
export function applyFile(draft: SweepDraft, sweep: Record<string, unknown>): SweepDraft {
  const objective = asTable(sweep.objective);
  const pruning = asTable(sweep.pruning);
  const budget = asTable(sweep.budget);
  const request = asTable(sweep.request) as Partial<CreateRequest>;
  const endsAt = budget.endsAt ? new Date(asText(budget.endsAt)) : undefined;
  const texts = <Name extends string>(table: Record<string, unknown>, old: Record<Name, string>) =>
    Object.fromEntries(Object.keys(old).map((name) => [name, asText(table[name])])) as Record<Name, string>;
  return {
    ...draft,
    name: asText(sweep.name) || draft.name,
    metric: asText(objective.metric) || draft.metric,
    goal: objective.goal === "maximize" ? "maximize" : "minimize",
    value: asText(objective.value) || "best",
    target: asText(objective.target),
    method: asText(sweep.method) || EMPTY_SWEEP.method,
    parameters: Object.entries(asTable(sweep.parameters)).map(([name, found]) => readParameter(name, asTable(found))),
    pruning: { ...texts(pruning, draft.pruning), method: asText(pruning.method) || "none" },
    budget: {
      ...texts(budget, draft.budget),
      endsAt: endsAt && !Number.isNaN(endsAt.getTime()) ? formatDateTimeInput(endsAt) : "",
    },
    parallel: asText(sweep.parallel) || EMPTY_SWEEP.parallel,
    priority: asText(request.priority) || draft.priority,
    preemptible: request.preemptible ?? draft.preemptible,
    request:
      Object.keys(request).length > 0 || draft.request
        ? { ...draft.request, ...omitFields(request, SET_FIELDS) }
        : draft.request,
  };
}

let lastKey = 0;

export function createParameter(name = "", patch: Partial<ParameterDraft> = {}): ParameterDraft {
  lastKey += 1;
  return {
    key: lastKey,
    name,
    kind: "values",
    values: "",
    min: "",
    max: "",
    step: "",
    log: false,
    conditions: [],
    ...patch,
  };
}

function readParameter(name: string, found: Record<string, unknown>): ParameterDraft {
  const isRange = found.min !== undefined || found.max !== undefined;
  return createParameter(name, {
    kind: isRange ? (found.type === "int" ? "int" : "float") : found.value !== undefined ? "value" : "values",
    values:
      found.value !== undefined ? formatValue(found.value) : found.values ? formatValues(asList(found.values)) : "",
    min: asText(found.min),
    max: asText(found.max),
    step: asText(found.step),
    log: found.scale === "log",
    conditions: Object.entries(asTable(found.when)).map(([parent, allowed]) => ({
      name: parent,
      values: formatValues(asList(allowed)),
    })),
  });
}

/** A parameter that the chosen task has, with its value there. */
export interface Proposal {
  name: string;
  value: Value;
}

/** Names that the platform's parameters of a sweep can have. */
const NAME = /^[A-Za-z_][A-Za-z0-9_.-]{0,99}$/;

/** Returns the parameters of a task: its script's arguments, its hyperparameters, and a model's defaults. */
export function listProposals(request: Partial<CreateRequest> | null, defaults: Record<string, unknown>): Proposal[] {
  if (!request) return [];
  const found = new Map<string, Value>();
  const add = (name: string, value: unknown) => {
    const isSimple = ["string", "number", "boolean"].includes(typeof value);
    if (NAME.test(name) && isSimple && !found.has(name)) found.set(name, value as Value);
  };
  for (const { name, value } of listArguments(request)) add(name, value);
  for (const [name, value] of Object.entries(request.hyperparameters ?? {})) add(name, value);
  if (!request.entrypoint) for (const [name, value] of Object.entries(defaults)) add(name, value);
  return [...found].filter(([, value]) => !/\{.*\}/.test(String(value))).map(([name, value]) => ({ name, value }));
}

/** From this value on, whole numbers are tried by their size, on a logarithmic scale. */
const LARGE_WHOLE = 64;

/** Returns a parameter with a range or choices around the value that a task has. */
export function proposeParameter({ name, value }: Proposal): ParameterDraft {
  if (typeof value === "boolean") return createParameter(name, { values: "true, false" });
  if (typeof value === "string") return createParameter(name, { values: formatValue(value) });
  if (Number.isInteger(value) && value > 0) {
    const min = String(Math.max(1, Math.round(value / 2)));
    return createParameter(name, { kind: "int", min, max: String(value * 2), log: value >= LARGE_WHOLE });
  }
  if (value > 0 && value < 0.1) {
    return createParameter(name, { kind: "float", min: format(value / 10), max: format(value * 10), log: true });
  }
  if (value > 0 && value < 1) {
    return createParameter(name, { kind: "float", min: format(value / 2), max: format(Math.min(1, value * 2)) });
  }
  const size = Math.abs(value) || 1;
  return createParameter(name, { kind: "float", min: format(value - size / 2), max: format(value + size) });
}

/** Formats a number without the digits that come from binary fractions. */
const format = (value: number) => String(Number(value.toPrecision(6)));

/** Returns the key of the parameter that a problem's field belongs to, and what of it. */
export function findParameter(field: string, parameters: ParameterDraft[]) {
  const rest = field.startsWith("parameters.") ? field.slice("parameters.".length) : undefined;
  if (rest === undefined) return undefined;
  const unnamed = rest === "" ? parameters.find(({ name }) => !name.trim()) : undefined;
  if (unnamed) return { key: unnamed.key, part: "" };
  const found = parameters
    .filter(({ name }) => name.trim() && (rest === name.trim() || rest.startsWith(`${name.trim()}.`)))
    .sort((one, other) => other.name.length - one.name.length)[0];
  return found && { key: found.key, part: rest.slice(found.name.trim().length + 1).split(".")[0] ?? "" };
}

/** Returns the name of the control for a problem's field. */
export function getControlName(field: string, parameters: ParameterDraft[]): string {
  const found = findParameter(field, parameters);
  return found ? `parameters.${found.key}${found.part ? `.${found.part}` : ""}` : field;
}

/** Returns the parameters whose name another one above them has. */
export function listRepeated(parameters: ParameterDraft[]): ParameterDraft[] {
  return parameters.filter(
    ({ name }, at) => name.trim() && parameters.slice(0, at).some((each) => each.name.trim() === name.trim()),
  );
}

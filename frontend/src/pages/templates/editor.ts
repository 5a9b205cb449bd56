/** Rules of the template editor: fields of a request, and parameters that stand for their values. Without React. */
import type { SavedTemplateRequest, TemplateParameter } from "@/api/types";
import { parseNumber } from "@/lib/parse-input";
import { formatValue, parseValue } from "@/ui/template-parameters/values";

export type Json = Record<string, unknown>;
export type ParameterType = TemplateParameter["type"];
export const PARAMETER_TYPES: readonly ParameterType[] = [
  "string",
  "integer",
  "number",
  "boolean",
  "choice",
  "environments",
  "datasetVersion",
];

/** A value of a request that a parameter can stand for. */
export interface RequestField {
  /** As problems name fields: `entrypoint.args.1`. */
  path: string;
  value: unknown;
}

/** A parameter in the form, as texts. */
export interface DraftParameter {
  /** Tells parameters apart while their names are typed. */
  key: number;
  name: string;
  type: ParameterType;
  label: string;
  help: string;
  usual: string;
  low: string;
  high: string;
  /** One in each line. */
  choices: string;
  /** The field that it is to stand for; undefined: its placeholder is in the request already. */
  place?: Place;
}

interface Place {
  path: string;
  /** What stays in front of the placeholder: `--lr=`. */
  prefix: string;
}

/** Lists of ids: a parameter stands for the whole list. */
const LIST_FIELDS = /(?:^|\.)(?:environmentIds|nodeIds|spareEnvironmentIds)$/;
/** Fields that a template does not have, or that the platform fills in. */
const FIXED_FIELDS = new Set(["projectId", "after"]);
const PLACEHOLDER = /\{\{([A-Za-z][A-Za-z0-9_]{0,39})(?:\.[A-Za-z]+)?\}\}/g;
const FLAG = /^(--?([A-Za-z][\w-]*)=)(.*)$/s;
const VERSION = "datasetVersionId";

const isObject = (value: unknown): value is Json =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Returns the fields of a request that have a value, in its order. */
export function listFields(request: unknown, path = ""): RequestField[] {
  if (isObject(request))
    return Object.entries(request).flatMap(([name, value]) =>
      path === "" && FIXED_FIELDS.has(name) ? [] : listFields(value, path ? `${path}.${name}` : name),
    );
  if (Array.isArray(request) && !LIST_FIELDS.test(path))
    return request.flatMap((value: unknown, index) => listFields(value, `${path}.${index}`));
  const empty = request === null || request === undefined || request === "";
  return empty || (Array.isArray(request) && request.length === 0) ? [] : [{ path, value: request }];
}

/** Returns the names of the parameters whose placeholders a value has. */
export function findPlaceholders(value: unknown): string[] {
  const texts = typeof value === "string" ? [value] : Array.isArray(value) ? value.map(String) : [];
  return [...new Set(texts.flatMap((text) => [...text.matchAll(PLACEHOLDER)].map(([, name]) => name ?? "")))];
}

/** Returns the request with a value at a path. */
export function setField(request: unknown, path: string, value: unknown): unknown {
  const [first = "", ...rest] = path.split(".");
  const inner = (old: unknown) => (rest.length > 0 ? setField(old, rest.join("."), value) : value);
  if (Array.isArray(request)) return request.map((old: unknown, index) => (String(index) === first ? inner(old) : old));
  return isObject(request) ? { ...request, [first]: inner(request[first]) } : request;
}

export function getField(request: unknown, path: string): unknown {
  return path.split(".").reduce<unknown>((found, name) => {
    if (Array.isArray(found)) return found[Number(name)] as unknown;
    return isObject(found) ? found[name] : undefined;
  }, request);
}

/** Returns a parameter for a field: its name, type and default follow from what is there. */
export function proposeParameter(request: Json, { path, value }: RequestField, key: number, taken: string[]) {
  const flag = typeof value === "string" ? FLAG.exec(value) : null;
  const [, prefix = "", option, text = ""] = flag ?? [];
  const usual = flag ? text : formatValue(value);
  const draft: DraftParameter = {
    key,
    name: chooseName(option ?? nameField(request, path), taken),
    type: guessType(path, flag ? text : value),
    label: "",
    help: "",
    usual,
    low: "",
    high: "",
    choices: "",
    place: { path, prefix },
  };
  return draft;
}

/** Names a field by its last part; an argument by the option in front of it. */
function nameField(request: Json, path: string): string {
  const parts = path.split(".");
  const last = parts.at(-1) ?? "";
  if (last === VERSION) return "data";
  if (last === "environmentIds") return "environments";
  if (!/^\d+$/.test(last)) return last;
  const before = getField(request, [...parts.slice(0, -1), String(Number(last) - 1)].join("."));
  const option = typeof before === "string" ? /^--?([A-Za-z][\w-]*)$/.exec(before)?.[1] : undefined;
  return option ?? `${parts.at(-2) ?? "value"}_${last}`;
}

function chooseName(wanted: string, taken: string[]): string {
  const plain =
    wanted
      .replace(/\W+/g, "_")
      .replace(/^[^A-Za-z]+/, "")
      .slice(0, 36) || "value";
  let name = plain;
  for (let count = 2; taken.includes(name); count++) name = `${plain}_${count}`;
  return name;
}

function guessType(path: string, value: unknown): ParameterType {
  if (LIST_FIELDS.test(path)) return "environments";
  if (path === VERSION) return "datasetVersion";
  if (typeof value === "boolean") return "boolean";
  const number = typeof value === "string" && /^entrypoint\./.test(path) ? parseNumber(value) : value;
  if (typeof number === "number") return Number.isInteger(number) ? "integer" : "number";
  return "string";
}

/** Returns a stored parameter as texts. */
export function buildDraft(parameter: TemplateParameter, key: number): DraftParameter {
  const { name, type, label, help, low, high, choices } = parameter;
  return {
    key,
    name,
    type,
    label: label === name ? "" : label,
    help,
    usual: formatValue(parameter.default),
    low: formatValue(low),
    high: formatValue(high),
    choices: choices.join("\n"),
  };
}

/** Returns the request with the placeholders of all parameters. */
export function buildRequest(request: Json, parameters: readonly DraftParameter[]): Json {
  return parameters.reduce((found, { name, type, place }) => {
    if (!place) return found;
    const filled = setField(found, place.path, `${place.prefix}{{${name}}}`) as Json;
    const version = type === "datasetVersion" && place.path === VERSION && "datasetId" in filled;
    return version ? { ...filled, datasetId: `{{${name}.dataset}}` } : filled;
  }, request);
}

/** Returns the parameters as the API takes them. */
export function buildParameters(
  parameters: readonly DraftParameter[],
): NonNullable<SavedTemplateRequest["parameters"]> {
  return parameters.map(({ name, type, label, help, usual, low, high, choices }) => {
    const bounds = type === "integer" || type === "number";
    return {
      name: name.trim(),
      type,
      label: label.trim(),
      help: help.trim(),
      ...(usual !== "" && { default: parseValue(type, usual) }),
      ...(bounds && low.trim() && { low: parseNumber(low) as number }),
      ...(bounds && high.trim() && { high: parseNumber(high) as number }),
      ...(type === "choice" && { choices: choices.split("\n").flatMap((each) => each.trim() || []) }),
    };
  });
}

/**
 * Returns the request without a parameter: its default stands where the placeholders were. `datasets` gives the dataset
 * of a version.
 */
export function removeParameter(request: Json, parameter: DraftParameter, datasets: ReadonlyMap<string, string>): Json {
  const { name, type, usual } = parameter;
  const replace = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(replace);
    if (isObject(value))
      return Object.fromEntries(Object.entries(value).map(([each, inner]) => [each, replace(inner)]));
    if (typeof value !== "string") return value;
    if (value === `{{${name}}}`) return usual === "" ? "" : parseValue(type, usual);
    return value.replaceAll(`{{${name}}}`, usual).replaceAll(`{{${name}.dataset}}`, datasets.get(usual) ?? "");
  };
  return replace(request) as Json;
}

/** Returns a parameter whose placeholder is in the request already. */
export function withoutPlace(parameter: DraftParameter): DraftParameter {
  const rest = { ...parameter };
  delete rest.place;
  return rest;
}

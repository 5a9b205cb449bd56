/** The schema of a request for a task: fields, defaults, bounds and flags of the command line. */
import schema from "./request.json";

export interface RequestField {
  type?: string | string[];
  default?: unknown;
  enum?: string[];
  anyOf?: RequestField[];
  additionalProperties?: RequestField | boolean;
  properties?: Record<string, RequestField>;
  "x-flag"?: { name: string; range?: string[] };
}

export const REQUEST: Record<string, RequestField> = schema.properties;
export const DISTRIBUTED_CONFIG: Record<string, RequestField> = schema.properties.distributedConfig.properties;

const getType = ({ type }: RequestField) => (Array.isArray(type) ? type[0] : type) ?? "";

export const isNumber = (rule?: RequestField) => rule !== undefined && ["integer", "number"].includes(getType(rule));

/** Returns the values that a field can have, or undefined if it can have any. */
export const getChoices = (rule?: RequestField): string[] | undefined =>
  rule?.enum ?? rule?.anyOf?.find((each) => each.enum)?.enum;

/** Fields with a fixed set of values. */
export const CHOICE_FIELDS = Object.keys(REQUEST).filter(
  (name) => REQUEST[name]?.["x-flag"] && getChoices(REQUEST[name]),
);

/** Fields that a single line of text can hold. */
export const TEXT_FIELDS = Object.entries(REQUEST)
  .filter(([name, rule]) => rule["x-flag"] && !getChoices(rule) && name !== "taskName")
  .filter(([, rule]) => isNumber(rule) || getType(rule) === "string")
  .map(([name]) => name);

/** Returns the seconds in the unit of a time field, which its name ends with; undefined for other fields. */
export const getUnitSeconds = (name: string): number | undefined =>
  name.endsWith("Seconds") ? 1 : name.endsWith("Minutes") ? 60 : undefined;

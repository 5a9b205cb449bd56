/** The request for a task as the platform declares it: names, defaults, bounds and flags of the command. */
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

/** The few values that a field may have; none: it may have any. A number may stand for one of them. */
export const getChoices = (rule?: RequestField): string[] | undefined =>
  rule?.enum ?? rule?.anyOf?.find((each) => each.enum)?.enum;

/** Single values of which there are a few to choose from. */
export const CHOICE_FIELDS = Object.keys(REQUEST).filter(
  (name) => REQUEST[name]?.["x-flag"] && getChoices(REQUEST[name]),
);

/** Single values that need no more of a form than a line to type them in. */
export const TEXT_FIELDS = Object.entries(REQUEST)
  .filter(([name, rule]) => rule["x-flag"] && !getChoices(rule) && name !== "taskName")
  .filter(([, rule]) => isNumber(rule) || getType(rule) === "string")
  .map(([name]) => name);

/** Seconds in the unit of a field that is a time: the API's names end with it. */
export const getUnitSeconds = (name: string): number | undefined =>
  name.endsWith("Seconds") ? 1 : name.endsWith("Minutes") ? 60 : undefined;

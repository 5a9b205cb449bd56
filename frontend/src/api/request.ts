/** The request for a task as the platform declares it: names, defaults, bounds and flags of the command. */
import whole from "./request.json";

export interface Rule {
  type?: string | string[];
  default?: unknown;
  enum?: string[];
  anyOf?: Rule[];
  additionalProperties?: Rule | boolean;
  properties?: Record<string, Rule>;
  "x-flag"?: { name: string; range?: string[] };
}

export const REQUEST: Record<string, Rule> = whole.properties;
export const CONFIG: Record<string, Rule> = whole.properties.distributedConfig.properties;

const typeOf = ({ type }: Rule) => (Array.isArray(type) ? type[0] : type) ?? "";

export const isNumber = (rule?: Rule) => rule !== undefined && ["integer", "number"].includes(typeOf(rule));

/** The few values that a field may have; none: it may have any. A number may stand for one of them. */
export const choicesOf = (rule?: Rule): string[] | undefined =>
  rule?.enum ?? rule?.anyOf?.find((each) => each.enum)?.enum;

/** Single values of which there are a few to choose from. */
export const CHOICES = Object.keys(REQUEST).filter((name) => REQUEST[name]?.["x-flag"] && choicesOf(REQUEST[name]));

/** Single values that need no more of a form than a line to type them in. */
export const PLAIN = Object.entries(REQUEST)
  .filter(([name, rule]) => rule["x-flag"] && !choicesOf(rule) && name !== "taskName")
  .filter(([, rule]) => isNumber(rule) || typeOf(rule) === "string")
  .map(([name]) => name);

/** Seconds in the unit of a field that is a time: the API's names end with it. */
export const unitOf = (name: string): number | undefined =>
  name.endsWith("Seconds") ? 1 : name.endsWith("Minutes") ? 60 : undefined;

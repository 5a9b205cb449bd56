import type { Framework } from "@/api/types";
import { parseNumber } from "@/lib/parse-input";

/** One property in the JSON Schema of a framework's options. */
export interface OptionRule {
  type?: string;
  enum?: unknown[];
  /** Labels of choices, if they differ from the choice. */
  enumTitles?: Record<string, string>;
  default?: unknown;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  title?: string;
  description?: string;
}

export type OptionRules = Record<string, OptionRule>;

export function findFramework(frameworks: Framework[], name: string): Framework | undefined {
  return frameworks.find(({ value, aliases }) => value === name || aliases.includes(name));
}

export function getOptionRules(framework: Framework | undefined): OptionRules {
  return (framework?.options.properties as OptionRules | undefined) ?? {};
}

/** Parses the text of an option's field. Invalid text is sent as typed, for the server to judge. */
export function parseOption(text: string, rule: OptionRule | undefined): unknown {
  if (rule?.enum) return rule.enum.find((choice) => String(choice) === text) ?? text;
  if (rule?.type === "boolean") return text === "true" || (text === "false" ? false : text);
  if (rule?.type === "integer" || rule?.type === "number") return parseNumber(text);
  if (rule?.type === "object" || rule?.type === "array") return parseJson(text);
  return text;
}

/** Formats a value for an option's field. */
export function formatOption(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** Formats bounds: `1 – 1024`, `≥ 1`. Empty without bounds, or if they are too large to matter. */
export function formatRange({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }: OptionRule): string {
  const high = maximum !== undefined && maximum < 1e9 ? maximum : undefined;
  if (minimum !== undefined && high !== undefined) return `${minimum} – ${high}`;
  return [
    minimum !== undefined && `≥ ${minimum}`,
    exclusiveMinimum !== undefined && `> ${exclusiveMinimum}`,
    high !== undefined && `≤ ${high}`,
    exclusiveMaximum !== undefined && `< ${exclusiveMaximum}`,
  ]
    .filter(Boolean)
    .join(", ");
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const STRATEGY = {
  data: "dataParallel",
  tensor: "tensorParallel",
  pipeline: "pipelineParallel",
  context: "contextParallel",
  fsdp: "fsdpParallel",
} as const;
export type StrategyName = (typeof STRATEGY)[keyof typeof STRATEGY];

/** Returns the framework's degrees of parallelism, in its order. */
export function listStrategyFields(framework: Framework | undefined): StrategyName[] {
  return (framework?.parallelism ?? []).flatMap((kind) =>
    kind in STRATEGY ? STRATEGY[kind as keyof typeof STRATEGY] : [],
  );
}

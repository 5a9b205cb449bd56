import type { Framework } from "@/api/types";
import { parseNumber } from "@/lib/parse-input";

/** One property of a framework's options, as its JSON Schema describes it. */
export interface OptionRule {
  type?: string;
  enum?: unknown[];
  /** Choice -> what it is called, where that is not the choice itself. */
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

/** What is typed into an option's field, as JSON; what cannot be read goes out as typed, for the server to judge. */
export function parseOption(text: string, rule: OptionRule | undefined): unknown {
  if (rule?.enum) return rule.enum.find((choice) => String(choice) === text) ?? text;
  if (rule?.type === "boolean") return text === "true" || (text === "false" ? false : text);
  if (rule?.type === "integer" || rule?.type === "number") return parseNumber(text);
  if (rule?.type === "object" || rule?.type === "array") return parseJson(text);
  return text;
}

/** The text of a field that holds `value`. */
export function formatOption(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** `1 – 1024`, `≥ 1`; empty without bounds. Bounds too large to mean anything are left out. */
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

/** The degrees of parallelism that the framework has, in the order in which it names them. */
export function listStrategyFields(framework: Framework | undefined): StrategyName[] {
  return (framework?.parallelism ?? []).flatMap((kind) =>
    kind in STRATEGY ? STRATEGY[kind as keyof typeof STRATEGY] : [],
  );
}

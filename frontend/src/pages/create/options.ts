import type { Framework } from "@/api/types";
import { numberOr } from "@/lib/typed";

/** One property of a framework's options, as its JSON Schema describes it. */
export interface Rule {
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

export type Rules = Record<string, Rule>;

export function frameworkNamed(frameworks: Framework[], name: string): Framework | undefined {
  return frameworks.find(({ value, aliases }) => value === name || aliases.includes(name));
}

export function rulesOf(framework: Framework | undefined): Rules {
  return (framework?.options.properties as Rules | undefined) ?? {};
}

/** What is typed into an option's field, as JSON; what cannot be read goes out as typed, for the server to judge. */
export function valueOf(text: string, rule: Rule | undefined): unknown {
  if (rule?.enum) return rule.enum.find((choice) => String(choice) === text) ?? text;
  if (rule?.type === "boolean") return text === "true" || (text === "false" ? false : text);
  if (rule?.type === "integer" || rule?.type === "number") return numberOr(text);
  if (rule?.type === "object" || rule?.type === "array") return jsonOr(text);
  return text;
}

/** The text of a field that holds `value`. */
export function textOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** `1 – 1024`, `≥ 1`; empty without bounds. Bounds too large to mean anything are left out. */
export function range({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }: Rule): string {
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

function jsonOr(text: string): unknown {
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
export function strategyOf(framework: Framework | undefined): StrategyName[] {
  return (framework?.parallelism ?? []).flatMap((kind) =>
    kind in STRATEGY ? STRATEGY[kind as keyof typeof STRATEGY] : [],
  );
}

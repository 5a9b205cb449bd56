/** Values of a template's parameters: as texts of a form, and as the API takes them. */
import type { Problem, TemplateParameter } from "@/api/types";
import { parseNumber } from "@/lib/parse-input";

/** The texts of the form, by parameter; environments are ids with commas. */
export type ValueTexts = Readonly<Record<string, string>>;

export function formatValue(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.join(",");
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Returns the text of each parameter: of the given values, or else of its default. */
export function buildTexts(
  parameters: readonly TemplateParameter[],
  values: Readonly<Record<string, unknown>> = {},
): ValueTexts {
  return Object.fromEntries(parameters.map(({ name, default: usual }) => [name, formatValue(values[name] ?? usual)]));
}

/**
 * Returns the values of a form that differ from the defaults. What is no number is sent as it was typed, so that the
 * platform says what is wrong with it.
 */
export function buildValues(parameters: readonly TemplateParameter[], texts: ValueTexts): Record<string, unknown> {
  const entries = parameters.flatMap(({ name, type, default: usual }): [string, unknown][] => {
    const text = texts[name] ?? "";
    if (text === formatValue(usual)) return [];
    if (text.trim() === "" && type !== "string") return [];
    return [[name, parseValue(type, text)]];
  });
  return Object.fromEntries(entries);
}

export function parseValue(type: TemplateParameter["type"], text: string): unknown {
  switch (type) {
    case "integer":
    case "number":
      return parseNumber(text);
    case "boolean":
      return text === "true" ? true : text === "false" ? false : text;
    case "environments":
      return text
        .split(",")
        .map((id) => id.trim())
        .filter(Boolean);
    default:
      return text;
  }
}

/** Returns problems as one text; undefined where there are none. */
export function joinProblems(problems: readonly Problem[]): string | undefined {
  const texts = problems.map(({ message, hint }) => [message, hint].filter(Boolean).join(" "));
  return texts.length > 0 ? texts.join("\n") : undefined;
}

/** Returns the problems that belong to no parameter of the form. */
export function listOtherProblems(problems: readonly Problem[], parameters: readonly TemplateParameter[]): Problem[] {
  const known = new Set(parameters.map(({ name }) => `values.${name}`));
  return problems.filter(({ field }) => !known.has(field));
}

/** Returns a parameter's bounds as a text; empty where it has none. */
export function formatBounds({ low, high }: Pick<TemplateParameter, "low" | "high">): string {
  if (low !== null && high !== null) return `${low} – ${high}`;
  return low !== null ? `≥ ${low}` : high !== null ? `≤ ${high}` : "";
}

/** A parameter's value, as the API has it. */
export type Value = string | number | boolean;

const ITEM = /\s*("(?:[^"\\]|\\.)*"|[^,\n]*)\s*(?:[,\n]|$)/gy;

/** Returns the values in a text, separated by commas or lines; in quotes, a value is a text whatever is in it. */
export function parseValues(text: string): Value[] {
  if (text.trim() === "") return [];
  return [...text.matchAll(ITEM)]
    .filter(({ index }, at) => index < text.length || at === 0)
    .map(([, item = ""]) => item.trim())
    .filter((item) => item !== "")
    .map(parseValue);
}

/** Returns the value that a person typed: a number, true, false, or a text. */
export function parseValue(typed: string): Value {
  const text = typed.trim();
  if (text === "true" || text === "false") return text === "true";
  if (/^".*"$/s.test(text)) {
    try {
      return JSON.parse(text) as string;
    } catch {
      return text;
    }
  }
  const number = Number(text);
  return text !== "" && Number.isFinite(number) ? number : text;
}

/** Formats a value so that `parseValue` returns it. */
export function formatValue(value: unknown): string {
  if (typeof value !== "string") return value == null ? "" : JSON.stringify(value);
  const isPlain = value !== "" && value === value.trim() && !/[",\n]/.test(value) && parseValue(value) === value;
  return isPlain ? value : JSON.stringify(value);
}

export const formatValues = (values: readonly unknown[]): string => values.map(formatValue).join(", ");

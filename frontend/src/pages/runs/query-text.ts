import type { Problem, RunCompletion, RunCompletionItem, RunValue } from "@/api/types";
import { ApiError } from "@/api/errors";
import { formatProblems } from "@/ui/form-dialog";

/** A part of a text, in units of JavaScript's strings. */
export interface TextRange {
  from: number;
  to: number;
}

export interface QueryProblem extends Partial<TextRange> {
  message: string;
}

/** Returns the number of characters before an index of a text, as the platform counts them. */
export function countCharacters(text: string, index: number): number {
  return Array.from(text.slice(0, index)).length;
}

/** Returns the index in a text of a number of characters. */
export function findIndex(text: string, characters: number): number {
  return Array.from(text).slice(0, Math.max(0, characters)).join("").length;
}

/** What a query can go on behind without a space: a name, by an operator. */
const NAMES = ["field", "parameter", "metric", "operator"];

/** Returns the text with an item of a completion, and where the cursor is then. */
export function applyCompletion(
  text: string,
  { from, to }: Pick<RunCompletion, "from" | "to">,
  item: RunCompletionItem,
): { text: string; cursor: number } {
  const start = findIndex(text, from);
  const end = Math.max(start, findIndex(text, to));
  const space = NAMES.includes(item.kind) || /^[\s),]/.test(text.slice(end)) ? "" : " ";
  const before = text.slice(0, start) + item.text + space;
  return { text: before + text.slice(end), cursor: before.length };
}

/** Returns the problem with a query, and its place where the platform names one; undefined for another error. */
export function readQueryProblem(error: unknown, query: string): QueryProblem | undefined {
  if (!(error instanceof ApiError)) return undefined;
  const problem: (Problem & { place?: TextRange | null }) | undefined = error.problems.find(
    ({ field }) => field === "query",
  );
  if (!problem) return undefined;
  if (!problem.place) return { message: formatProblems(problem) };
  const { from, to } = problem.place;
  const start = findIndex(query, from);
  return { message: formatProblems(problem), from: start, to: Math.max(start, findIndex(query, to)) };
}

const quoteText = (text: string) => `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;

/** Returns a value as a query writes it: in quotes where it has characters that mean something else there. */
export const quoteValue = (value: string) => (/^[^\s"(),*\\]+$/.test(value) ? value : quoteText(value));

/** Returns a column as a query names it. */
export function quoteField(column: string): string {
  const found = /^(param\.|metric\.)?(.*?)((?<=^metric\..*)\.(?:last|best|min|max))?$/s.exec(column);
  const [prefix = "", name = "", value = ""] = found?.slice(1) ?? [];
  return prefix + (/^[^\s"():,=<>!~\\-][^\s"():,=<>!~\\]*$/.test(name) ? name : quoteText(name)) + value;
}

/** Columns whose value may be several, with commas. */
const LISTS = ["zone", "gpuType"];

/** Returns a query for those of its runs that have the values of a group. */
export function narrowQuery(query: string, columns: string[], key: Record<string, RunValue>): string {
  const conditions = columns.flatMap((column) => {
    const value = key[column] ?? null;
    if (value === null) return [`-${quoteField(column)}:*`];
    const values = LISTS.includes(column) ? String(value).split(", ") : [String(value)];
    return values.map((each) => `${quoteField(column)}:${quoteValue(each)}`);
  });
  const trimmed = query.trim();
  const before = /\bor\b/i.test(trimmed) ? `(${trimmed})` : trimmed;
  return [before, ...conditions].filter(Boolean).join(" ");
}

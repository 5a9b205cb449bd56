/** Start and end in UTF-16 units. */
export type MatchSpan = readonly [number, number];

/** The most matches marked in one line. */
const MAX_MATCHES = 200;

/** Returns where a text occurs, ignoring case; `needle` in lower case. */
export function findText(text: string, needle: string): MatchSpan[] {
  const found: MatchSpan[] = [];
  const lower = text.toLowerCase();
  for (
    let at = lower.indexOf(needle);
    at !== -1 && found.length < MAX_MATCHES;
    at = lower.indexOf(needle, at + needle.length)
  ) {
    found.push([at, at + needle.length]);
  }
  return found;
}

export function findMatches(text: string, expression: RegExp): MatchSpan[] {
  const found: MatchSpan[] = [];
  for (const { index, 0: match } of text.matchAll(expression)) {
    if (match) found.push([index, index + match.length]);
    if (found.length === MAX_MATCHES) break;
  }
  return found;
}

const FLAGS = /^\(\?([ims]+)\)/;
/** Syntax that RE2 and JavaScript read differently. */
const UNSUPPORTED = /\\[aAzQECpP]|\[\[:|\(\?[a-zA-Z^-]|\(\?<?[=!]|\\[1-9]/;

/** Returns the expression for JavaScript, ignoring case; undefined if it may mean something else than in RE2. */
export function compileExpression(search: string): RegExp | undefined {
  const flags = FLAGS.exec(search)?.[1] ?? "";
  const rest = search.replace(FLAGS, "").replaceAll("(?P<", "(?<");
  if (UNSUPPORTED.test(rest)) return undefined;
  try {
    return new RegExp(rest, [...new Set(`gi${flags}`)].join(""));
  } catch {
    return undefined;
  }
}

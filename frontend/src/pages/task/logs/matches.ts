/** From where to where, in UTF-16 units. */
export type MatchSpan = readonly [number, number];

/** Nobody reads more marks than this in one line. */
const MAX_MATCHES = 200;

/** Wherever a text is, whatever its case; `needle` in lower case. */
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
/** What RE2 and JavaScript do not both know, or take for something else. */
const UNSUPPORTED = /\\[aAzQECpP]|\[\[:|\(\?[a-zA-Z^-]|\(\?<?[=!]|\\[1-9]/;

/** The same expression for JavaScript, whatever the case, as the platform reads it; none where that may mean something else. */
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

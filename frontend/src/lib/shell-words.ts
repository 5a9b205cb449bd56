const WORD = /(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|['"\\])+/gs;
const QUOTED = /\\(.)|'([^']*)'|"((?:[^"\\]|\\.)*)"/gs;

/** Returns the words of a text as a shell reads them, without its variables and patterns. */
export function splitWords(text: string): string[] {
  return [...text.matchAll(WORD)].map(([word]) =>
    word.replace(
      QUOTED,
      (_, escaped?: string, single?: string, double?: string) =>
        escaped ?? single ?? (double ?? "").replace(/\\(["\\$`])/g, "$1"),
    ),
  );
}

/** Returns words as they would be typed in a shell. */
export function joinWords(words: string[]): string {
  return words.map((word) => (/^[\w@%+=:,./{}-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)).join(" ");
}

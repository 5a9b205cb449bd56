export type TokenKind = "comment" | "string" | "key" | "number" | "keyword";

export interface Token {
  text: string;
  kind?: TokenKind;
}

type Grammar = [TokenKind, string][];

const STRING = String.raw`"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'`;
const NUMBER = String.raw`(?<![\w.-])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.:-])`;
const HASH: Grammar[number] = ["comment", String.raw`(?<=^|\s)#.*`];

const JSON_: Grammar = [
  ["key", String.raw`"(?:[^"\\\n]|\\.)*"(?=\s*:)`],
  ["string", STRING],
  ["number", NUMBER],
  ["keyword", String.raw`\b(?:true|false|null)\b`],
];
const YAML: Grammar = [
  HASH,
  ["key", String.raw`(?<=^[ \t]*(?:- )*)[\w./-]+(?=:(?:\s|$))`],
  ["string", STRING],
  ["number", NUMBER],
  ["keyword", String.raw`\b(?:true|false|null)\b|(?<=^[ \t]*)(?:---|-(?= ))`],
];
const SHELL: Grammar = [
  HASH,
  ["string", STRING],
  ["key", String.raw`\$\{?\w+\}?|(?<=^[ \t]*(?:export )?)\w+(?==)|(?<=\s)--?[a-zA-Z][\w-]*`],
  [
    "keyword",
    String.raw`(?<![\w-])(?:if|then|else|elif|fi|for|in|do|done|while|case|esac|function|export|exec)(?![\w-])`,
  ],
  ["number", NUMBER],
];
const PYTHON: Grammar = [
  HASH,
  ["string", String.raw`"""[\s\S]*?"""|'''[\s\S]*?'''|` + STRING],
  [
    "keyword",
    String.raw`\b(?:and|as|assert|async|await|class|def|del|elif|else|except|False|finally|for|from|global|if|import|in|is|lambda|None|nonlocal|not|or|pass|raise|return|True|try|while|with|yield)\b`,
  ],
  ["number", NUMBER],
];

const BY_ENDING: Record<string, Grammar> = {
  json: JSON_,
  yaml: YAML,
  yml: YAML,
  py: PYTHON,
  sh: SHELL,
  sbatch: SHELL,
  env: SHELL,
};

/** Longer texts are not highlighted. */
const MAX_CHARACTERS = 100_000;

const compileGrammar = new Map<Grammar, RegExp>();

function pattern(grammar: Grammar): RegExp {
  let found = compileGrammar.get(grammar);
  if (!found) {
    found = new RegExp(grammar.map(([, source]) => `(${source})`).join("|"), "gm");
    compileGrammar.set(grammar, found);
  }
  return found;
}

function detectGrammar(name: string, text: string): Grammar | undefined {
  const ending = BY_ENDING[name.split(".").at(-1)?.toLowerCase() ?? ""];
  if (ending) return ending;
  if (text.startsWith("#!")) return /^#!.*python/.test(text) ? PYTHON : SHELL;
  return /^\s*[[{]/.test(text) ? JSON_ : undefined;
}

/** Splits a text into tokens, by the language of its name or first line. Together they are the text. */
export function tokenize(name: string, text: string): Token[] {
  const grammar = detectGrammar(name, text);
  if (!grammar || text.length > MAX_CHARACTERS) return [{ text }];
  const tokens: Token[] = [];
  let end = 0;
  for (const match of text.matchAll(pattern(grammar))) {
    if (match.index > end) tokens.push({ text: text.slice(end, match.index) });
    const kind = grammar[match.slice(1).findIndex(Boolean)]?.[0];
    tokens.push({ text: match[0], ...(kind && { kind }) });
    end = match.index + match[0].length;
  }
  if (end < text.length) tokens.push({ text: text.slice(end) });
  return tokens;
}

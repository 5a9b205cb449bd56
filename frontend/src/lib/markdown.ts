/**
 * Parses a small part of Markdown into blocks: headings, paragraphs, lists, quotes, code, and inside of them code,
 * emphasis and links. HTML stays text.
 */

export type Inline =
  | { kind: "text" | "code"; text: string }
  | { kind: "strong" | "emphasis"; children: Inline[] }
  | { kind: "link"; href: string; children: Inline[] };

export type Block =
  | { kind: "heading"; level: number; children: Inline[] }
  | { kind: "paragraph"; children: Inline[] }
  | { kind: "list"; ordered: boolean; start: number; items: Inline[][] }
  | { kind: "quote"; blocks: Block[] }
  | { kind: "code"; text: string }
  | { kind: "rule" };

const FENCE = /^ {0,3}(```+|~~~+)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const ITEM = /^\s*(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const RULE = /^ {0,3}(?:-{3,}|\*{3,}|_{3,})\s*$/;
/** Deeper quotes are shown as text. */
const MAX_DEPTH = 4;

/** Returns the blocks of a text. */
export function parseMarkdown(text: string, depth = 0): Block[] {
  const lines = text.replaceAll("\r\n", "\n").split("\n");
  const blocks: Block[] = [];
  let at = 0;
  const collect = (wanted: (line: string) => boolean) => {
    const from = at;
    while (at < lines.length && wanted(lines[at] ?? "")) at += 1;
    return lines.slice(from, at);
  };
  while (at < lines.length) {
    const line = lines[at] ?? "";
    const fence = FENCE.exec(line)?.[1];
    const heading = HEADING.exec(line);
    if (line.trim() === "") at += 1;
    else if (fence) {
      at += 1;
      const code = collect((each) => !each.trimStart().startsWith(fence));
      at += 1;
      blocks.push({ kind: "code", text: code.join("\n") });
    } else if (heading) {
      at += 1;
      blocks.push({ kind: "heading", level: heading[1]?.length ?? 1, children: parseInline(heading[2] ?? "") });
    } else if (RULE.test(line)) {
      at += 1;
      blocks.push({ kind: "rule" });
    } else if (QUOTE.test(line) && depth < MAX_DEPTH) {
      const inner = collect((each) => QUOTE.test(each)).map((each) => QUOTE.exec(each)?.[1] ?? "");
      blocks.push({ kind: "quote", blocks: parseMarkdown(inner.join("\n"), depth + 1) });
    } else if (ITEM.test(line)) {
      const number = ITEM.exec(line)?.[1];
      const items: string[] = [];
      for (const each of collect((next) => ITEM.test(next) || /^\s+\S/.test(next))) {
        const item = ITEM.exec(each)?.[2];
        if (item === undefined) items.push(`${items.pop() ?? ""}\n${each.trim()}`);
        else items.push(item);
      }
      blocks.push({
        kind: "list",
        ordered: number !== undefined,
        start: Number(number ?? 1),
        items: items.map((item) => parseInline(item)),
      });
    } else {
      const first = at;
      const paragraph = collect((each) => at === first || (each.trim() !== "" && !startsBlock(each)));
      blocks.push({ kind: "paragraph", children: parseInline(paragraph.join("\n").trim()) });
    }
  }
  return blocks;
}

const startsBlock = (line: string) => [FENCE, HEADING, ITEM, QUOTE, RULE].some((each) => each.test(line));

const INLINE =
  /(`+)(.+?)\1(?!`)|\*\*(?=\S)(.+?)\*\*|(?<![\w*])[*_](?=[^\s*_])(.+?)[*_](?![\w*])|\[([^\][]*)\]\(([^()\s]*)\)|(https?:\/\/[^\s<>"')\]]*[^\s<>"')\].,;:!?，。；：！？、）])/su;

/** Returns the address where a link may lead: the web, mail, or a page of the console; undefined for any other. */
function readAddress(text: string): string | undefined {
  return /^(https?:\/\/|mailto:|\/(?![/\\]))/i.test(text) ? text : undefined;
}

/** Returns the parts of a line. */
export function parseInline(text: string): Inline[] {
  const parts: Inline[] = [];
  let rest = text;
  for (let found = INLINE.exec(rest); found; found = INLINE.exec(rest)) {
    const [whole, , code, strong, emphasis, label, target, address] = found;
    if (found.index > 0) parts.push({ kind: "text", text: rest.slice(0, found.index) });
    const href = readAddress(address ?? target ?? "");
    if (code !== undefined) parts.push({ kind: "code", text: code.trim() });
    else if (strong !== undefined) parts.push({ kind: "strong", children: parseInline(strong) });
    else if (emphasis !== undefined) parts.push({ kind: "emphasis", children: parseInline(emphasis) });
    else if (href !== undefined && address !== undefined)
      parts.push({ kind: "link", href, children: [{ kind: "text", text: address }] });
    else if (href !== undefined && label) parts.push({ kind: "link", href, children: parseInline(label) });
    else parts.push({ kind: "text", text: whole });
    rest = rest.slice(found.index + whole.length);
  }
  if (rest) parts.push({ kind: "text", text: rest });
  return parts;
}

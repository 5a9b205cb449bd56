import { expect, test } from "vitest";
import { parseInline, parseMarkdown } from "./markdown";

const text = (words: string) => ({ kind: "text", text: words });

test("a note has headings, paragraphs, lists, quotes, code and rules", () => {
  const note =
    "# Title\nfirst\nline\n\n- one\n  more\n- two\n\n3. three\n\n> said\n\n```py\n# no heading\n```\n---\nend";
  expect(parseMarkdown(note)).toEqual([
    { kind: "heading", level: 1, children: [text("Title")] },
    { kind: "paragraph", children: [text("first\nline")] },
    { kind: "list", ordered: false, start: 1, items: [[text("one\nmore")], [text("two")]] },
    { kind: "list", ordered: true, start: 3, items: [[text("three")]] },
    { kind: "quote", blocks: [{ kind: "paragraph", children: [text("said")] }] },
    { kind: "code", text: "# no heading" },
    { kind: "rule" },
    { kind: "paragraph", children: [text("end")] },
  ]);
});

test("a line has code, emphasis and links, also one inside of another", () => {
  expect(parseInline("a `b*c*` **d _e_** [f](https://x.org) https://y.org/z.")).toEqual([
    text("a "),
    { kind: "code", text: "b*c*" },
    text(" "),
    { kind: "strong", children: [text("d "), { kind: "emphasis", children: [text("e")] }] },
    text(" "),
    { kind: "link", href: "https://x.org", children: [text("f")] },
    text(" "),
    { kind: "link", href: "https://y.org/z", children: [text("https://y.org/z")] },
    text("."),
  ]);
});

test("names with underscores and sums with stars stay as they are", () => {
  for (const plain of ["val_loss_best and my_lr", "2 * 3 * 4", "a*b", "**", "[x] done", "`open"])
    expect(parseInline(plain)).toEqual([text(plain)]);
});

test("a link that would run a script, or lead to another host by two slashes, is a text", () => {
  for (const target of ["javascript:alert(1)", "JAVASCRIPT:x", "data:text/html,x", "//evil.org", "/\\evil.org"])
    expect(parseInline(`[x](${target})`)).toEqual([text(`[x](${target})`)]);
  expect(parseInline("[x](/training/task-1)")).toEqual([
    { kind: "link", href: "/training/task-1", children: [text("x")] },
  ]);
});

test("HTML stays text, and no text takes long or fails", () => {
  expect(parseMarkdown("<img src=x onerror=alert(1)>")).toEqual([
    { kind: "paragraph", children: [text("<img src=x onerror=alert(1)>")] },
  ]);
  for (const hard of [
    "*".repeat(20_000),
    "[".repeat(20_000),
    "`".repeat(20_001),
    "> ".repeat(5_000),
    "_a ".repeat(6_000),
  ])
    expect(parseMarkdown(hard).length).toBeGreaterThan(0);
});

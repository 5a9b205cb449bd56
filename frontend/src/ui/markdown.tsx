import type { ReactNode } from "react";
import { Link } from "react-router";
import { type Block, type Inline, parseMarkdown } from "@/lib/markdown";

const LINK = "text-accent-ink underline underline-offset-2 hover:no-underline";

/** A text in Markdown. HTML in it is shown as text, and links lead to the web, to mail or to the console only. */
export function Markdown({ text }: { text: string }) {
  return <div className="space-y-2 text-sm break-words">{parseMarkdown(text).map(renderBlock)}</div>;
}

function renderBlock(block: Block, key: number): ReactNode {
  switch (block.kind) {
    case "heading":
      return (
        <h3 key={key} className={block.level === 1 ? "text-base font-semibold" : "font-semibold"}>
          {block.children.map(renderInline)}
        </h3>
      );
    case "list": {
      const items = block.items.map((item, index) => <li key={index}>{item.map(renderInline)}</li>);
      return block.ordered ? (
        <ol key={key} start={block.start} className="list-decimal space-y-1 pl-6">
          {items}
        </ol>
      ) : (
        <ul key={key} className="list-disc space-y-1 pl-6">
          {items}
        </ul>
      );
    }
    case "quote":
      return (
        <blockquote key={key} className="space-y-2 border-l-2 pl-3 text-muted">
          {block.blocks.map(renderBlock)}
        </blockquote>
      );
    case "code":
      return (
        <pre key={key} tabIndex={0} className="overflow-x-auto rounded-lg bg-sunken p-2 font-mono text-xs">
          {block.text}
        </pre>
      );
    case "rule":
      return <hr key={key} />;
    case "paragraph":
      return (
        <p key={key} className="whitespace-pre-line">
          {block.children.map(renderInline)}
        </p>
      );
  }
}

function renderInline(part: Inline, key: number): ReactNode {
  switch (part.kind) {
    case "text":
      return part.text;
    case "code":
      return (
        <code key={key} className="rounded bg-sunken px-1 font-mono text-xs">
          {part.text}
        </code>
      );
    case "strong":
      return <strong key={key}>{part.children.map(renderInline)}</strong>;
    case "emphasis":
      return <em key={key}>{part.children.map(renderInline)}</em>;
    case "link":
      return part.href.startsWith("/") ? (
        <Link key={key} to={part.href} className={LINK}>
          {part.children.map(renderInline)}
        </Link>
      ) : (
        <a key={key} href={part.href} rel="noreferrer noopener" target="_blank" className={LINK}>
          {part.children.map(renderInline)}
        </a>
      );
  }
}

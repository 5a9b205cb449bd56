import { useMemo } from "react";
import { escapeName } from "@/lib/escape-name";
import { CopyButton } from "./copy-button";
import { tokenize, type TokenKind } from "./highlight";

const COLOR: Record<TokenKind, string> = {
  comment: "text-muted italic",
  string: "text-ok-ink",
  key: "text-info-ink",
  number: "text-warn-ink",
  keyword: "text-accent-ink",
};

interface CodeProps {
  /** The file name, which tells the language and labels the code for screen readers. */
  name: string;
  content: string;
}

export function CodeBlock({ name, content }: CodeProps) {
  const tokens = useMemo(() => tokenize(name, content), [name, content]);
  return (
    <div className="relative">
      <pre
        tabIndex={0}
        aria-label={escapeName(name)}
        className="max-h-96 min-h-24 overflow-auto rounded-lg border bg-sunken p-3 pr-12 font-mono text-xs leading-relaxed"
      >
        {tokens.map(({ kind, text }, index) =>
          kind ? (
            <span key={index} className={COLOR[kind]}>
              {text}
            </span>
          ) : (
            text
          ),
        )}
      </pre>
      <div className="absolute top-1 right-1 rounded-lg bg-sunken">
        <CopyButton text={content} />
      </div>
    </div>
  );
}

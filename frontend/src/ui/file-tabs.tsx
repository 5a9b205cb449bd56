import { useState } from "react";
import type { RenderedFile } from "@/api/types";
import { cx } from "@/lib/cx";
import { escapeName } from "@/lib/escape-name";
import { CodeBlock } from "./code-block";

export { CopyButton } from "./copy-button";

/** Named texts in tabs. */
export function FileTabs({ files }: { files: RenderedFile[] }) {
  const [name, setName] = useState<string>();
  const file = files.find((each) => each.name === name) ?? files[0];
  if (!file) return null;
  return (
    <div className="space-y-2">
      <div className="flex flex-wrap gap-1">
        {files.map((each) => (
          <button
            key={each.name}
            type="button"
            aria-pressed={each === file}
            onClick={() => setName(each.name)}
            className={cx(
              "max-w-full rounded-md px-2 py-1 font-mono text-xs break-all",
              each === file ? "bg-accent-soft text-accent-ink" : "text-muted hover:bg-sunken hover:text-ink",
            )}
          >
            {escapeName(each.name)}
          </button>
        ))}
      </div>
      <CodeBlock name={file.name} content={file.content} />
    </div>
  );
}

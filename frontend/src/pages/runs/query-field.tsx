import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { CornerDownLeft, Search, X } from "lucide-react";
import type { TFunction } from "i18next";
import { type KeyboardEvent, useEffect, useId, useLayoutEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { completionQuery } from "@/api/runs";
import type { RunCompletionItem } from "@/api/types";
import { cx } from "@/lib/cx";
import { useDebounced } from "@/lib/hooks";
import { Button } from "@/ui/button";
import { getFieldLabel } from "./columns";
import { applyCompletion, countCharacters, type QueryProblem } from "./query-text";

const MAX_QUERY_LENGTH = 2_000;
const COMPLETE_AFTER_MS = 150;

/** Returns what an item of the completion is: of a field its name in the reader's language. */
function describeItem(t: TFunction, { kind, text }: RunCompletionItem): string {
  if (kind === "field") return getFieldLabel(t, text.replace(/:$/, ""));
  return kind === "parameter" || kind === "metric" ? t(`runs.columnGroups.${kind}`) : "";
}

interface QueryFieldProps {
  value: string;
  onSearch: (query: string) => void;
  /** What is wrong with `value`. */
  problem: QueryProblem | undefined;
  isSearching: boolean;
}

/** A field for a query: it completes what is typed, searches on Enter, and marks the place of a problem. */
export function QueryField({ value, onSearch, problem, isSearching }: QueryFieldProps) {
  const { t } = useTranslation();
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  const [text, setText] = useState(value);
  const [cursor, setCursor] = useState(value.length);
  const [open, setOpen] = useState(false);
  const [active, setActive] = useState(-1);
  const [scroll, setScroll] = useState(0);
  const wantedCursor = useRef<number>(undefined);
  const [was, setWas] = useState(value);
  if (was !== value) {
    setWas(value);
    setText(value);
    setOpen(false);
  }
  const asked = useDebounced(JSON.stringify([text, countCharacters(text, cursor)]), COMPLETE_AFTER_MS);
  const [askedText, askedPosition] = JSON.parse(asked) as [string, number];
  const completion = useQuery({
    ...completionQuery(askedText, askedPosition),
    enabled: open,
    placeholderData: keepPreviousData,
  });
  const isCurrent = !completion.isPlaceholderData && askedText === text;
  const items = (open && completion.data?.items) || [];
  const isListed = items.length > 0;

  useLayoutEffect(() => {
    if (wantedCursor.current === undefined) return;
    input.current?.setSelectionRange(wantedCursor.current, wantedCursor.current);
    wantedCursor.current = undefined;
  });
  useEffect(() => {
    if (active >= 0) document.getElementById(`${id}-${active}`)?.scrollIntoView({ block: "nearest" });
  }, [id, active]);

  const edit = (next: string, at: number) => {
    setText(next);
    setCursor(at);
    setActive(-1);
    setOpen(true);
  };
  const accept = (item: RunCompletionItem) => {
    if (!completion.data) return;
    const next = applyCompletion(text, completion.data, item);
    wantedCursor.current = next.cursor;
    edit(next.text, next.cursor);
    input.current?.focus();
  };
  const search = (query: string) => {
    setOpen(false);
    onSearch(query.trim());
  };
  const onKeyDown = (event: KeyboardEvent<HTMLInputElement>) => {
    if (event.nativeEvent.isComposing) return;
    const chosen = items[active];
    const keys: Record<string, (() => void) | undefined> = {
      ArrowDown: () => (isListed ? setActive((active + 1) % items.length) : setOpen(true)),
      ArrowUp: isListed ? () => setActive((active <= 0 ? items.length : active) - 1) : undefined,
      Enter: () => (chosen && isCurrent ? accept(chosen) : search(text)),
      Tab:
        isListed && isCurrent && !event.shiftKey && text !== value
          ? () => {
              const first = chosen ?? items[0];
              if (first) accept(first);
            }
          : undefined,
      Escape: open && isListed ? () => setOpen(false) : undefined,
    };
    const run = keys[event.key];
    if (!run) return;
    event.preventDefault();
    event.stopPropagation();
    run();
  };

  const marked = problem?.from !== undefined && problem.to !== undefined && text === value;
  const from = marked ? (problem.from ?? 0) : 0;
  const to = marked ? Math.max(problem.to ?? 0, from) : 0;
  const isEnd = from >= text.length;
  return (
    <div className="min-w-0 flex-1">
      <form
        role="search"
        className="flex gap-2"
        onSubmit={(event) => {
          event.preventDefault();
          search(text);
        }}
      >
        <div className="relative min-w-0 flex-1">
          <Search aria-hidden className="pointer-events-none absolute top-2.5 left-3 z-10 size-4 text-muted" />
          <input
            ref={input}
            type="text"
            role="combobox"
            aria-label={t("runs.query")}
            placeholder={t("runs.queryExample")}
            aria-expanded={isListed}
            aria-controls={`${id}-list`}
            aria-autocomplete="list"
            aria-activedescendant={isListed && active >= 0 ? `${id}-${active}` : undefined}
            aria-invalid={problem ? true : undefined}
            aria-describedby={problem ? `${id}-problem` : undefined}
            autoComplete="off"
            autoCapitalize="off"
            spellCheck={false}
            maxLength={MAX_QUERY_LENGTH}
            className="control pr-9 pl-9 font-mono"
            value={text}
            onChange={({ target }) => edit(target.value, target.selectionStart ?? target.value.length)}
            onSelect={({ currentTarget }) => setCursor(currentTarget.selectionStart ?? 0)}
            onScroll={({ currentTarget }) => setScroll(currentTarget.scrollLeft)}
            onFocus={() => setOpen(true)}
            onClick={() => setOpen(true)}
            onBlur={() => setOpen(false)}
            onKeyDown={onKeyDown}
          />
          {marked && (
            <div
              aria-hidden
              className="pointer-events-none absolute inset-x-9 inset-y-px flex items-center overflow-hidden font-mono text-sm whitespace-pre text-transparent"
            >
              <span style={{ transform: `translateX(${1 - scroll}px)` }}>
                {text.slice(0, from)}
                <mark className="bg-bad/15 text-transparent underline decoration-bad decoration-wavy decoration-2 underline-offset-2">
                  {isEnd ? " " : text.slice(from, Math.max(to, from + 1))}
                </mark>
              </span>
            </div>
          )}
          {text && (
            <button
              type="button"
              aria-label={t("runs.clearQuery")}
              className="absolute top-1.5 right-1.5 rounded p-1 text-muted hover:text-ink"
              onClick={() => {
                setText("");
                search("");
                input.current?.focus();
              }}
            >
              <X className="size-4" />
            </button>
          )}
          <ul
            id={`${id}-list`}
            role="listbox"
            aria-label={t("runs.suggestions")}
            hidden={!isListed}
            className="absolute top-full z-30 mt-1 max-h-72 w-full max-w-2xl overflow-y-auto rounded-lg border bg-surface p-1 text-sm shadow-lg"
          >
            {items.map((item, index) => (
              <li
                key={`${item.kind} ${item.text}`}
                id={`${id}-${index}`}
                role="option"
                aria-selected={index === active}
                className={cx(
                  "flex cursor-pointer items-baseline justify-between gap-4 rounded px-2 py-1.5",
                  index === active ? "bg-accent-soft" : "hover:bg-sunken",
                )}
                onPointerDown={(event) => event.preventDefault()}
                onClick={() => accept(item)}
              >
                <span className="min-w-0 truncate font-mono">{item.text}</span>
                <span className="min-w-0 shrink-0 truncate text-xs text-muted">{describeItem(t, item)}</span>
              </li>
            ))}
          </ul>
        </div>
        <Button type="submit" look={text.trim() === value ? "secondary" : "primary"} aria-busy={isSearching}>
          <CornerDownLeft />
          <span className="hidden sm:inline">{t("runs.search")}</span>
          <span className="sr-only sm:hidden">{t("runs.search")}</span>
        </Button>
      </form>
      {problem && (
        <p id={`${id}-problem`} role="alert" className="mt-1.5 text-sm text-bad-ink">
          {problem.message}
          {marked && !isEnd && (
            <code className="ml-2 rounded bg-bad-soft px-1 font-mono text-xs break-all">{text.slice(from, to)}</code>
          )}
        </p>
      )}
    </div>
  );
}

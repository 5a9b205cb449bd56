import { defaultRangeExtractor, type Range, useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, type RefObject, useCallback, useEffect, useRef, useState } from "react";
import { flushSync } from "react-dom";
import { useTranslation } from "react-i18next";
import type { Environment } from "@/api/types";
import { useTaskNames } from "@/lib/use-task-names";
import { EnvironmentCard } from "./environment-card";
import { type ProblemsByField, getProblemText } from "./problems";

const CARD_PX = 128;
const GAP_PX = 10;
const TWO_COLUMNS_FROM_PX = 600;
/** Longer lists get a link that skips them. */
const SKIPPABLE_FROM = 20;

interface EnvironmentListProps {
  environments: Environment[];
  selected: string[];
  master: string;
  problems: ProblemsByField;
  onToggle: (id: string) => void;
}

/** Cards in one or two columns. Only the visible rows and the one with the focus are rendered. */
export function EnvironmentList({ environments, selected, master, problems, onToggle }: EnvironmentListProps) {
  const { t } = useTranslation();
  const box = useRef<HTMLDivElement>(null);
  const after = useRef<HTMLDivElement>(null);
  const columns = useColumns(box);
  const [focused, setFocused] = useState(0);
  const focusedRow = Math.floor(focused / columns);
  const count = Math.ceil(environments.length / columns);
  // eslint-disable-next-line react-hooks/incompatible-library -- only this component reads the virtualizer
  const rows = useVirtualizer({
    count,
    getScrollElement: () => box.current,
    estimateSize: () => CARD_PX,
    gap: GAP_PX,
    overscan: 4,
    paddingStart: 4,
    paddingEnd: 4,
    rangeExtractor: (range: Range) => addFocusedRow(defaultRangeExtractor(range), focusedRow, count),
  });
  const ticked = new Set(selected);
  const names = useTaskNames(environments.map(({ heldBy }) => heldBy));
  const holderOf = (id: string) => (names ? (names.get(id) ?? t("environments.otherTask")) : "…");

  const onArrow = useCallback(
    (event: KeyboardEvent, index: number) => {
      const to = findArrowTarget(event.key, index, columns, environments.length);
      if (to === undefined) return;
      event.preventDefault();
      flushSync(() => setFocused(to)); // its row is rendered now
      box.current?.querySelector<HTMLElement>(`[data-place="${to}"]`)?.focus();
    },
    [columns, environments.length],
  );

  return (
    <div className="relative">
      {environments.length > SKIPPABLE_FROM && (
        <button
          type="button"
          className="sr-only rounded-lg bg-accent px-3 py-2 text-sm text-white focus:not-sr-only focus:absolute focus:top-1 focus:left-1 focus:z-10"
          onClick={() => after.current?.focus()}
        >
          {t("create.skipList")}
        </button>
      )}
      <div
        ref={box}
        role="group"
        aria-label={t("create.environments")}
        className="-mx-1 max-h-[34rem] overflow-y-auto px-1"
      >
        <div role="list" className="relative" style={{ height: rows.getTotalSize() }}>
          {rows.getVirtualItems().map((row) => (
            <div
              key={row.key}
              ref={rows.measureElement}
              data-index={row.index}
              className="absolute inset-x-0 top-0 grid gap-2.5"
              style={{
                gridTemplateColumns: `repeat(${columns}, minmax(0, 1fr))`,
                transform: `translateY(${row.start}px)`,
              }}
            >
              {environments.slice(row.index * columns, (row.index + 1) * columns).map((each, column) => {
                const index = row.index * columns + column;
                return (
                  <div
                    key={each.id}
                    role="listitem"
                    className="min-w-0"
                    aria-setsize={environments.length}
                    aria-posinset={index + 1}
                  >
                    <EnvironmentCard
                      environment={each}
                      holder={each.heldBy ? holderOf(each.heldBy) : ""}
                      index={index}
                      ticked={ticked.has(each.id)}
                      master={selected.length > 1 && master === each.id}
                      problem={getProblemText(problems, `environments.${each.id}`)}
                      onToggle={onToggle}
                      onArrow={onArrow}
                      onFocus={setFocused}
                    />
                  </div>
                );
              })}
            </div>
          ))}
        </div>
      </div>
      <div ref={after} tabIndex={-1} className="outline-none" />
    </div>
  );
}

function addFocusedRow(rows: number[], row: number, count: number): number[] {
  return row >= count || rows.includes(row) ? rows : [...rows, row].sort((a, b) => a - b);
}

/** Returns the index that a key moves to: arrows, Home and End. */
function findArrowTarget(key: string, index: number, columns: number, count: number): number | undefined {
  const to = {
    ArrowDown: index + columns,
    ArrowUp: index - columns,
    ArrowRight: index + 1,
    ArrowLeft: index - 1,
    Home: 0,
    End: count - 1,
  }[key];
  return to !== undefined && to >= 0 && to < count ? to : undefined;
}

function useColumns(box: RefObject<HTMLElement | null>): number {
  const [columns, setColumns] = useState(1);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setColumns(element.clientWidth >= TWO_COLUMNS_FROM_PX ? 2 : 1));
    observer.observe(element);
    return () => observer.disconnect();
  }, [box]);
  return columns;
}

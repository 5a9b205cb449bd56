import { ArrowDown, ArrowUp, ChevronsUpDown } from "lucide-react";
import type { ComponentProps, ReactNode } from "react";
import { cx } from "@/lib/cx";
import { useCompactRows } from "@/lib/use-table-settings";
import type { Selection } from "@/lib/use-selection";

export interface Column {
  label: ReactNode;
  className?: string | undefined;
  /** The sort order of the heading's first press: "name", or "-createdAt" for descending. */
  order?: string | undefined;
}

/** Columns that appear as there is room; use the class for their cells, too. */
export const MEDIUM_COLUMN = "hidden md:table-cell";
export const WIDE_COLUMN = "hidden lg:table-cell";
export const WIDEST_COLUMN = "hidden xl:table-cell";
/** A cell with a checkbox. */
export const CHECKBOX_CELL = "w-px pr-0!";

interface TableProps {
  label: string;
  columns: Column[];
  /** The current sort order; undefined: the default. */
  ordering?: string | undefined;
  onOrder?: (ordering: string) => void;
  /** `<tr>` elements. */
  children: ReactNode;
}

/** A table in a frame that scrolls sideways if even its narrow form does not fit. */
export function Table({ label, columns, ordering, onOrder, children }: TableProps) {
  const [dense] = useCompactRows();
  return (
    <div
      role="group"
      data-dense={dense ? "" : undefined}
      aria-label={label}
      tabIndex={0}
      className="relative overflow-x-auto rounded-xl border bg-surface shadow-xs"
    >
      <table className="w-full text-left text-sm">
        <thead className="border-b bg-sunken text-muted">
          <tr className="*:px-4 *:py-2.5 *:font-medium *:whitespace-nowrap in-data-dense:*:py-1.5">
            {columns.map(({ label: name, className, order }, index) =>
              order && onOrder ? (
                <SortHeading key={index} className={className} order={order} ordering={ordering} onOrder={onOrder}>
                  {name}
                </SortHeading>
              ) : (
                <th key={index} className={className}>
                  {name}
                </th>
              ),
            )}
          </tr>
        </thead>
        <tbody className="divide-y">{children}</tbody>
      </table>
    </div>
  );
}

export const ROW =
  "align-top *:px-4 *:py-3 hover:bg-sunken/60 has-[a:focus-visible]:bg-accent-soft in-data-dense:align-middle in-data-dense:*:py-1";

interface SortHeadingProps extends Omit<ComponentProps<"th">, "className"> {
  className: string | undefined;
  order: string;
  ordering: string | undefined;
  onOrder: (ordering: string) => void;
  children: ReactNode;
}

const reverseOrdering = (order: string) => (order.startsWith("-") ? order.slice(1) : `-${order}`);

/** A heading that sorts: in its order, then reversed, then the default. */
export function SortHeading({ order, ordering, onOrder, children, ...cell }: SortHeadingProps) {
  const chosen = ordering === order || ordering === reverseOrdering(order);
  const descends = chosen && ordering.startsWith("-");
  const Arrow = !chosen ? ChevronsUpDown : descends ? ArrowDown : ArrowUp;
  const next = ordering === order ? reverseOrdering(order) : chosen ? "" : order;
  return (
    <th {...cell} aria-sort={!chosen ? "none" : descends ? "descending" : "ascending"}>
      <button
        type="button"
        onClick={() => onOrder(next)}
        className={cx(
          "group inline-flex max-w-full items-center gap-1 rounded hover:text-ink in-[.text-right]:flex-row-reverse",
          chosen && "text-ink",
        )}
      >
        {children}
        <Arrow
          aria-hidden
          className={cx(
            "size-3.5 shrink-0",
            !chosen && "opacity-0 group-hover:opacity-60 group-focus-visible:opacity-60",
          )}
        />
      </button>
    </th>
  );
}

/** The checkbox that selects all. */
export function SelectAllCheckbox({ ticks, label }: { ticks: Selection; label: string }) {
  return (
    <input
      type="checkbox"
      aria-label={label}
      disabled={ticks.ids.length === 0}
      checked={ticks.all}
      onChange={ticks.toggleAll}
    />
  );
}

/** Names with their values. */
export function DefinitionList({ facts, className }: { facts: [string, ReactNode][]; className?: string }) {
  return (
    <dl className={cx("space-y-1.5 text-sm", className)}>
      {facts.map(([name, value]) => (
        <div key={name} className="flex justify-between gap-4">
          <dt className="shrink-0 text-muted">{name}</dt>
          <dd className="min-w-0 text-right break-words">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

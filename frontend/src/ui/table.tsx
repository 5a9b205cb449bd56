import type { ReactNode } from "react";
import { cx } from "@/lib/cx";
import type { Ticks } from "@/lib/ticks";

export interface Column {
  label: ReactNode;
  className?: string | undefined;
}

/** Columns join as the room grows; give their cells the same class. */
export const MEDIUM = "hidden md:table-cell";
export const WIDE = "hidden lg:table-cell";
/** A cell with a checkbox. */
export const TICK = "w-px pr-0!";

interface TableProps {
  label: string;
  columns: Column[];
  /** Rows, `<tr>` each. */
  children: ReactNode;
}

/** A table in a frame of its own, which scrolls sideways where even its narrow form does not fit. */
export function Table({ label, columns, children }: TableProps) {
  return (
    <div
      role="group"
      aria-label={label}
      tabIndex={0}
      className="relative overflow-x-auto rounded-xl border bg-surface shadow-xs"
    >
      <table className="w-full text-left text-sm">
        <thead className="border-b bg-sunken text-muted">
          <tr className="*:px-4 *:py-2.5 *:font-medium *:whitespace-nowrap">
            {columns.map(({ label: name, className }, index) => (
              <th key={index} className={className}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody className="divide-y">{children}</tbody>
      </table>
    </div>
  );
}

export const ROW = "align-top *:px-4 *:py-3 hover:bg-sunken/60";

/** The checkbox above the others. */
export function TickAll({ ticks, label }: { ticks: Ticks; label: string }) {
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

/** Pairs of a name and what it is. */
export function Facts({ facts, className }: { facts: [string, ReactNode][]; className?: string }) {
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

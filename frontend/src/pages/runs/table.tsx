import { useVirtualizer } from "@tanstack/react-virtual";
import { ChevronRight } from "lucide-react";
import { type DragEvent, type ReactNode, type UIEvent, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import type { Run, RunGroup } from "@/api/types";
import { cx } from "@/lib/cx";
import { useCompactRows } from "@/lib/use-table-settings";
import type { Selection } from "@/lib/use-selection";
import { SelectAllCheckbox, SortHeading } from "@/ui/table";
import { AggregateCell, formatValue, RunCell } from "./cells";
import { type ColumnInfo, getFirstOrder, isNumeric } from "./columns";
import type { Line } from "./lines";
import { RunName } from "./run-name";

const HEADER_HEIGHT = 40;
const ROW_HEIGHT = 48;
const DENSE_ROW_HEIGHT = 32;
/** Further pinned rows scroll with the others. */
const MAX_FIXED_ROWS = 5;
const CHECKBOX_WIDTH = 40;

export interface RunTableProps {
  columns: ColumnInfo[];
  lines: Line[];
  /** Shown first: the baseline and the pinned runs. */
  fixed: Run[];
  baseline: Run | undefined;
  pinned: string[];
  sort: string;
  groupBy: ColumnInfo[];
  selection: Selection;
  /** What is shown is of an earlier search. */
  isOld: boolean;
  mayChange: (run: Run) => boolean;
  onSort: (sort: string) => void;
  onMoveColumn: (name: string, target: string) => void;
  onToggleGroup: (id: string) => void;
  onShowGroup: (group: RunGroup) => void;
  onPin: (run: Run) => void;
  onBaseline: (run: Run | undefined) => void;
  onNote: (run: Run) => void;
  /** Called when the end of the lines comes into sight. */
  onEnd: () => void;
}

/** The runs in rows of equal height, of which only the visible ones are rendered. */
export function RunTable(props: RunTableProps) {
  const { columns, lines, fixed, sort, selection, isOld, onSort, onMoveColumn, onEnd } = props;
  const { t } = useTranslation();
  const [dense] = useCompactRows();
  const box = useRef<HTMLDivElement>(null);
  const anchor = useRef<string>(undefined);
  const [dragged, setDragged] = useState<string>();
  const [over, setOver] = useState<string>();
  const height = dense ? DENSE_ROW_HEIGHT : ROW_HEIGHT;
  // eslint-disable-next-line react-hooks/incompatible-library -- only this component reads the virtualizer
  const rows = useVirtualizer({
    count: lines.length,
    getScrollElement: () => box.current,
    estimateSize: () => height,
    getItemKey: (index) => lines[index]?.id ?? index,
    paddingStart: fixed.length * height,
    scrollPaddingStart: HEADER_HEIGHT + Math.min(fixed.length, MAX_FIXED_ROWS) * height,
    overscan: 12,
  });
  const [measured, setMeasured] = useState(height);
  if (measured !== height) {
    setMeasured(height);
    rows.measure();
  }
  const items = rows.getVirtualItems();
  const above = Math.max(0, (items[0]?.start ?? 0) - fixed.length * height);
  const below = Math.max(0, rows.getTotalSize() - (items.at(-1)?.end ?? rows.getTotalSize()));
  const span = columns.length + 3;
  const width = columns.reduce((sum, column) => sum + column.width, CHECKBOX_WIDTH);

  const onScroll = ({ currentTarget: { scrollHeight, scrollTop, clientHeight } }: UIEvent<HTMLDivElement>) => {
    if (scrollHeight - scrollTop - clientHeight < 10 * height) onEnd();
  };
  /** Ticks a run; with Shift, all from the last one that was ticked. */
  const tick = (id: string, isRange: boolean) => {
    const from = anchor.current === undefined ? -1 : selection.ids.indexOf(anchor.current);
    const to = selection.ids.indexOf(id);
    anchor.current = id;
    const range = isRange && from >= 0 ? selection.ids.slice(Math.min(from, to), Math.max(from, to) + 1) : [id];
    selection.select(range, !selection.selected.includes(id));
  };
  const dragging = (name: string) => ({
    draggable: true,
    onDragStart: (event: DragEvent) => {
      event.dataTransfer.effectAllowed = "move";
      event.dataTransfer.setData("text/plain", name);
      setDragged(name);
    },
    onDragEnd: () => {
      setDragged(undefined);
      setOver(undefined);
    },
    onDragOver: (event: DragEvent) => {
      if (dragged === undefined) return;
      event.preventDefault();
      setOver(name);
    },
    onDrop: (event: DragEvent) => {
      event.preventDefault();
      if (dragged !== undefined) onMoveColumn(dragged, name);
    },
  });

  return (
    <div
      ref={box}
      role="group"
      aria-label={t("runs.title")}
      tabIndex={0}
      data-dense={dense ? "" : undefined}
      onScroll={onScroll}
      className={cx(
        "relative max-h-[max(24rem,calc(100dvh-15rem))] overflow-auto rounded-xl border bg-surface shadow-xs transition-opacity",
        isOld && "opacity-60",
      )}
    >
      <table
        aria-rowcount={lines.length + fixed.length + 1}
        aria-busy={isOld}
        className="w-full table-fixed border-separate border-spacing-0 text-left text-sm [--name:11rem] sm:[--name:19rem]"
        style={{ minWidth: `calc(var(--name) + ${width}px)` }}
      >
        <colgroup>
          <col style={{ width: CHECKBOX_WIDTH }} />
          <col style={{ width: "var(--name)" }} />
          {columns.map((column) => (
            <col key={column.name} style={{ width: column.width }} />
          ))}
          <col />
        </colgroup>
        <thead className="text-muted">
          <tr aria-rowindex={1} className="*:sticky *:top-0 *:z-20 *:h-10 *:border-b *:bg-sunken *:px-3 *:font-medium">
            <td className="left-0 z-30! pr-0! [&>input]:block">
              <SelectAllCheckbox ticks={selection} label={t("runs.selectAll")} />
            </td>
            <SortHeading className="left-10 z-30! border-r" order="name" ordering={sort} onOrder={onSort} scope="col">
              {t("runs.name")}
            </SortHeading>
            {columns.map((column) => {
              const { name, label } = column;
              const order = getFirstOrder(column);
              const className = cx(
                isNumeric(column) && "text-right",
                dragged === name && "opacity-50",
                over === name && dragged !== name && "outline-2 -outline-offset-2 outline-accent-line",
              );
              const text = (
                <span className="min-w-0 truncate" title={name}>
                  {label}
                </span>
              );
              return order ? (
                <SortHeading
                  key={name}
                  scope="col"
                  className={className}
                  order={order}
                  ordering={sort}
                  onOrder={onSort}
                  {...dragging(name)}
                >
                  {text}
                </SortHeading>
              ) : (
                <th key={name} scope="col" className={className} {...dragging(name)}>
                  {text}
                </th>
              );
            })}
            <Filler />
          </tr>
        </thead>
        {fixed.length > 0 && (
          <tbody>
            {fixed.map((run, index) => (
              <RunRow
                key={run.task.taskId}
                {...props}
                run={run}
                index={index}
                height={height}
                top={index < MAX_FIXED_ROWS ? HEADER_HEIGHT + index * height : undefined}
                onTick={tick}
              />
            ))}
          </tbody>
        )}
        <tbody>
          {above > 0 && <Space height={above} span={span} />}
          {items.map(({ index, key }) => {
            const line = lines[index];
            if (!line) return null;
            const place = { index: index + fixed.length, height };
            if (line.kind === "run") return <RunRow key={key} {...props} {...place} run={line.run} onTick={tick} />;
            if (line.kind === "group")
              return <GroupRow key={key} {...props} {...place} group={line.group} id={line.id} isOpen={line.isOpen} />;
            return (
              <tr key={key} style={{ height }} aria-rowindex={place.index + 2}>
                <td colSpan={span} className="border-b px-3 text-muted">
                  {line.kind === "loading" ? (
                    t("app.loading")
                  ) : (
                    <button
                      type="button"
                      className="sticky left-3 rounded font-medium text-accent-ink hover:underline"
                      onClick={() => props.onShowGroup(line.group)}
                    >
                      {t("runs.groupRest", { shown: line.shown, count: line.group.count })}
                    </button>
                  )}
                </td>
              </tr>
            );
          })}
          {below > 0 && <Space height={below} span={span} />}
        </tbody>
      </table>
    </div>
  );
}

/** The width that few columns leave. */
function Filler({ top }: { top?: number | undefined }) {
  return <td aria-hidden className="p-0!" style={{ top }} />;
}

/** The height of the rows that are not rendered. */
function Space({ height, span }: { height: number; span: number }) {
  return (
    <tr aria-hidden>
      <td colSpan={span} style={{ height }} />
    </tr>
  );
}

const ROW = "group/row *:border-b *:bg-surface *:px-3 hover:*:bg-sunken has-[a:focus-visible]:*:bg-accent-soft";

interface RunRowProps extends RunTableProps {
  run: Run;
  index: number;
  height: number;
  /** Where it stays while the others scroll. */
  top?: number | undefined;
  onTick: (id: string, isRange: boolean) => void;
}

function RunRow({ run, index, height, top, onTick, columns, baseline, selection, ...table }: RunRowProps) {
  const { t } = useTranslation();
  const { taskId, taskName } = run.task;
  const isBaseline = baseline?.task.taskId === taskId;
  const isSelected = selection.selected.includes(taskId);
  const mayChange = table.mayChange(run);
  const isRange = useRef(false);
  const sticks = top !== undefined;
  const layer = sticks ? "z-20!" : "z-10";
  return (
    <tr
      style={{ height }}
      aria-rowindex={index + 2}
      className={cx(
        ROW,
        sticks && "*:sticky *:z-10",
        isSelected && "*:bg-accent-soft!",
        isBaseline && "*:border-b-2! *:border-b-accent-line!",
      )}
    >
      <td className={cx("sticky left-0 pr-0! [&>input]:block", layer)} style={{ top }}>
        <input
          type="checkbox"
          aria-label={t("runs.select", { name: taskName })}
          checked={isSelected}
          onClick={({ shiftKey }) => (isRange.current = shiftKey)}
          onChange={() => onTick(taskId, isRange.current)}
        />
      </td>
      <th scope="row" className={cx("sticky left-10 border-r pr-1! font-normal", layer)} style={{ top }}>
        <RunName
          run={run}
          isBaseline={isBaseline}
          isPinned={table.pinned.includes(taskId)}
          mayChange={mayChange}
          onPin={() => table.onPin(run)}
          onBaseline={() => table.onBaseline(isBaseline ? undefined : run)}
          onNote={() => table.onNote(run)}
        />
      </th>
      {columns.map((column) => (
        <td
          key={column.name}
          style={{ top }}
          className={cx("overflow-hidden whitespace-nowrap", isNumeric(column) && "text-right tabular-nums")}
        >
          <RunCell run={run} column={column} baseline={baseline} mayChange={mayChange} onNote={table.onNote} />
        </td>
      ))}
      <Filler top={top} />
    </tr>
  );
}

interface GroupRowProps extends RunTableProps {
  group: RunGroup;
  id: string;
  isOpen: boolean;
  index: number;
  height: number;
}

function GroupRow({ group, id, isOpen, index, height, columns, groupBy, onToggleGroup }: GroupRowProps) {
  const { t } = useTranslation();
  return (
    <tr style={{ height }} aria-rowindex={index + 2} className="*:border-b *:bg-canvas *:px-3">
      <th scope="rowgroup" colSpan={2} className="sticky left-0 z-10 border-r font-normal">
        <button
          type="button"
          aria-expanded={isOpen}
          onClick={() => onToggleGroup(id)}
          className="flex w-full items-center gap-2 rounded text-left -outline-offset-2"
        >
          <ChevronRight aria-hidden className={cx("size-4 shrink-0 transition-transform", isOpen && "rotate-90")} />
          <span className="flex min-w-0 flex-1 flex-wrap gap-x-3 overflow-hidden">
            {groupBy.map((column) => (
              <Pair key={column.name} name={column.label}>
                {formatValue(t, column, group.key[column.name])}
              </Pair>
            ))}
          </span>
          <span className="shrink-0 rounded-full bg-sunken px-2 text-xs text-muted tabular-nums">
            <span className="sr-only">{t("runs.count", { count: group.count })}</span>
            <span aria-hidden>{group.count.toLocaleString()}</span>
          </span>
        </button>
      </th>
      {columns.map((column) => (
        <td key={column.name} className="overflow-hidden text-right whitespace-nowrap tabular-nums">
          <AggregateCell column={column} aggregate={group.values[column.name]} />
        </td>
      ))}
      <Filler />
    </tr>
  );
}

function Pair({ name, children }: { name: string; children: ReactNode }) {
  return (
    <span className="max-w-full truncate">
      <span className="text-muted">{name} </span>
      <span className="font-medium">{children}</span>
    </span>
  );
}

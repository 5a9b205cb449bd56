import { useQuery } from "@tanstack/react-query";
import { ArrowDown, ArrowUp, Columns3, GripVertical, X } from "lucide-react";
import type { TFunction } from "i18next";
import { type DragEvent, type KeyboardEvent, useId, useLayoutEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { runColumnsQuery } from "@/api/runs";
import type { RunColumn } from "@/api/types";
import { cx } from "@/lib/cx";
import { useDebounced } from "@/lib/hooks";
import { Button } from "@/ui/button";
import { LoadError } from "@/ui/errors";
import { Modal } from "@/ui/modal";
import {
  buildCurve,
  COLUMN_GROUPS,
  type ColumnInfo,
  CURVE_VALUES,
  type CurveValue,
  getFieldLabel,
  splitCurve,
} from "./columns";
import { DEFAULT_COLUMNS, MAX_COLUMNS, moveBy, moveTo } from "./table-state";

interface ColumnChooserProps {
  columns: ColumnInfo[];
  onChange: (names: string[]) => void;
}

/** Chooses the columns of the table and their order. */
export function ColumnChooser({ columns, onChange }: ColumnChooserProps) {
  const { t } = useTranslation();
  return (
    <Modal
      wide
      title={t("runs.columns")}
      description={t("runs.columnsHint", { most: MAX_COLUMNS })}
      trigger={
        <Button look="ghost">
          <Columns3 />
          {t("list.columns")}
        </Button>
      }
    >
      <div className="grid gap-5 sm:grid-cols-2">
        <Available columns={columns} onChange={onChange} />
        <Chosen columns={columns} onChange={onChange} />
      </div>
    </Modal>
  );
}

/** Returns the name of a column without its group. */
const getColumnName = (t: TFunction, name: string) =>
  /^(param|metric)\./.test(name) ? name.replace(/^\w+\./, "") : getFieldLabel(t, name);

/** Returns whether a column is one that was chosen; of a curve, whether any of its values is. */
function isSameColumn(name: string, { name: available }: RunColumn): boolean {
  const curve = splitCurve(available);
  return name === available || (curve !== undefined && splitCurve(name)?.base === curve.base);
}

function Available({ columns, onChange }: ColumnChooserProps) {
  const { t } = useTranslation();
  const [text, setText] = useState("");
  const found = useQuery(runColumnsQuery(useDebounced(text.trim(), 200)));
  // The platform searches by the names that queries have, the reader perhaps by those of the console.
  const first = useQuery(runColumnsQuery("")).data ?? [];
  const names = columns.map(({ name }) => name);
  const isFull = names.length >= MAX_COLUMNS;
  const needle = text.trim().toLowerCase();
  // A curve has a column for each of its values; it is offered once.
  const offered = new Map(
    [...first, ...(found.data ?? [])].map((column) => [splitCurve(column.name)?.base ?? column.name, column]),
  );
  const matching = [...offered]
    .map(([name, column]) => ({ ...column, label: getColumnName(t, name) }))
    .filter(({ name, label }) => `${name} ${label}`.toLowerCase().includes(needle));
  const toggle = (column: RunColumn) => {
    const rest = names.filter((each) => !isSameColumn(each, column));
    const curve = splitCurve(column.name);
    onChange(rest.length < names.length ? rest : [...names, curve ? buildCurve(curve.base, "best") : column.name]);
  };
  return (
    <section aria-label={t("runs.availableColumns")} className="flex min-h-0 min-w-0 flex-col">
      <input
        type="search"
        aria-label={t("runs.findColumn")}
        placeholder={t("runs.findColumn")}
        className="control mb-2"
        value={text}
        onChange={({ target }) => setText(target.value)}
      />
      {found.isError && <LoadError error={found.error} retry={() => void found.refetch()} />}
      {found.data && matching.length === 0 && <p className="py-2 text-sm text-muted">{t("runs.noColumn")}</p>}
      <div tabIndex={0} role="group" aria-label={t("runs.availableColumns")} className="max-h-80 overflow-y-auto pr-1">
        {COLUMN_GROUPS.map((group) => {
          const inGroup = matching.filter((each) => each.group === group && each.name !== "name");
          if (inGroup.length === 0) return null;
          return (
            <fieldset key={group} className="mb-3">
              <legend className="mb-1 text-xs font-semibold text-muted">{t(`runs.columnGroups.${group}`)}</legend>
              {inGroup.map((column) => {
                const checked = names.some((name) => isSameColumn(name, column));
                return (
                  <label
                    key={column.name}
                    title={column.name}
                    className="flex items-center gap-2 rounded px-2 py-1 text-sm hover:bg-sunken"
                  >
                    <input
                      type="checkbox"
                      checked={checked}
                      disabled={(!checked && isFull) || (checked && names.length === 1)}
                      onChange={() => toggle(column)}
                    />
                    <span className="min-w-0 truncate">{column.label}</span>
                  </label>
                );
              })}
            </fieldset>
          );
        })}
      </div>
    </section>
  );
}

const WAYS = [
  ["up", -1],
  ["down", 1],
] as const;

function Chosen({ columns, onChange }: ColumnChooserProps) {
  const { t } = useTranslation();
  const id = useId();
  const list = useRef<HTMLUListElement>(null);
  const moved = useRef<{ name: string; way: string }>(undefined);
  const [dragged, setDragged] = useState<string>();
  const names = columns.map(({ name }) => name);

  /** Keeps the focus on the row that moved. */
  useLayoutEffect(() => {
    if (!moved.current) return;
    const { name, way } = moved.current;
    const rows = list.current?.querySelectorAll<HTMLElement>("[data-column]") ?? [];
    const row = [...rows].find(({ dataset }) => dataset.column === name);
    const button = row?.querySelector<HTMLElement>(`[data-way="${way}"]:not(:disabled)`);
    (button ?? row?.querySelector<HTMLElement>("[data-way]:not(:disabled)"))?.focus();
    moved.current = undefined;
  }, [columns]);

  const move = (name: string, way: string, by: number) => {
    moved.current = { name, way };
    onChange(moveBy(names, name, by));
  };
  const onKeyDown = (event: KeyboardEvent, name: string) => {
    if (!event.altKey || (event.key !== "ArrowUp" && event.key !== "ArrowDown")) return;
    event.preventDefault();
    if (event.key === "ArrowUp") move(name, "up", -1);
    else move(name, "down", 1);
  };
  const dragging = (name: string) => ({
    draggable: true,
    onDragStart: (event: DragEvent) => {
      event.dataTransfer.effectAllowed = "move";
      event.dataTransfer.setData("text/plain", name);
      setDragged(name);
    },
    onDragEnd: () => setDragged(undefined),
    onDragOver: (event: DragEvent) => {
      if (dragged === undefined) return;
      event.preventDefault();
      if (dragged !== name) onChange(moveTo(names, dragged, name));
    },
    onDrop: (event: DragEvent) => event.preventDefault(),
  });
  return (
    <section aria-labelledby={id} className="min-w-0">
      <div className="mb-2 flex min-h-9 items-center justify-between gap-2">
        <h3 id={id} className="text-sm font-medium">
          {t("runs.chosenColumns", { count: columns.length })}
        </h3>
        <Button look="ghost" size="sm" onClick={() => onChange(DEFAULT_COLUMNS)}>
          {t("runs.defaultColumns")}
        </Button>
      </div>
      <ul ref={list} className="max-h-80 space-y-1 overflow-y-auto pr-1">
        {columns.map(({ name, label }, index) => {
          const curve = splitCurve(name);
          return (
            <li
              key={name}
              data-column={name}
              onKeyDown={(event) => onKeyDown(event, name)}
              className={cx(
                "flex items-center gap-1 rounded-lg border bg-surface px-1.5 py-0.5 text-sm",
                dragged === name && "opacity-50",
              )}
              {...dragging(name)}
            >
              <GripVertical aria-hidden className="size-4 shrink-0 cursor-grab text-muted" />
              <span title={name} className="min-w-0 flex-1 truncate">
                {curve ? curve.base.replace(/^metric\./, "") : label}
              </span>
              {curve && (
                <CurveSelect
                  {...curve}
                  taken={names}
                  onChange={(next) => onChange(names.map((each) => (each === name ? next : each)))}
                />
              )}
              {WAYS.map(([way, by]) => (
                <button
                  key={way}
                  type="button"
                  data-way={way}
                  aria-label={t(`runs.move.${way}`, { name: label })}
                  disabled={by < 0 ? index === 0 : index === columns.length - 1}
                  className="rounded p-1 text-muted -outline-offset-2 hover:text-ink disabled:opacity-30"
                  onClick={() => move(name, way, by)}
                >
                  {way === "up" ? <ArrowUp className="size-3.5" /> : <ArrowDown className="size-3.5" />}
                </button>
              ))}
              <button
                type="button"
                aria-label={t("runs.removeColumn", { name: label })}
                disabled={columns.length === 1}
                className="rounded p-1 text-muted -outline-offset-2 hover:text-ink disabled:opacity-30"
                onClick={() => onChange(names.filter((each) => each !== name))}
              >
                <X className="size-3.5" />
              </button>
            </li>
          );
        })}
      </ul>
    </section>
  );
}

interface CurveSelectProps {
  base: string;
  value: CurveValue;
  /** Columns that are shown already. */
  taken: string[];
  onChange: (name: string) => void;
}

/** Which value of a curve the column has. */
function CurveSelect({ base, value, taken, onChange }: CurveSelectProps) {
  const { t } = useTranslation();
  return (
    <select
      aria-label={t("runs.curveValue", { name: base.replace(/^metric\./, "") })}
      className="control h-7 w-auto pr-7 text-xs"
      value={value}
      onChange={({ target }) => onChange(buildCurve(base, target.value as CurveValue))}
    >
      {CURVE_VALUES.filter((each) => each === value || !taken.includes(buildCurve(base, each))).map((each) => (
        <option key={each} value={each}>
          {t(`runs.curve.${each}`)}
        </option>
      ))}
    </select>
  );
}

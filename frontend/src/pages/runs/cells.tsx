import { CircleX, CircleCheck } from "lucide-react";
import type { TFunction } from "i18next";
import { useTranslation } from "react-i18next";
import type { Run, RunFigures, RunValue, Status } from "@/api/types";
import { cx } from "@/lib/cx";
import { formatDateTime, formatDuration, formatNumber, formatShortTime } from "@/lib/format";
import { parseMarkdown } from "@/lib/markdown";
import { STATUSES, StatusBadge } from "@/ui/status-badge";
import { type ColumnInfo, isNumeric } from "./columns";
import { compareValues } from "./differences";
import { TagCell } from "./tag-cell";

const isStatus = (value: unknown): value is Status => STATUSES.includes(value as Status);

/** Returns a value as a text; a dash where there is none. */
export function formatValue(t: TFunction, column: ColumnInfo, value: RunValue | undefined): string {
  const { name, kind } = column;
  if (value == null || value === "") return "–";
  if (typeof value === "number") return kind === "duration" ? formatDuration(t, value) : formatNumber(value);
  if (kind === "time") return formatShortTime(value);
  if (name === "status" && isStatus(value)) return t(`status.${value}`);
  return value;
}

interface RunCellProps {
  run: Run;
  column: ColumnInfo;
  baseline: Run | undefined;
  mayChange: boolean;
  onNote: (run: Run) => void;
}

/** A value of a run, with its difference from the baseline's where there is one. */
export function RunCell({ run, column, baseline, mayChange, onNote }: RunCellProps) {
  const { t } = useTranslation();
  const { name, kind } = column;
  const value = run.values[name];
  if (name === "tag") return <TagCell run={run} mayChange={mayChange} />;
  if (name === "note") return <NoteCell run={run} mayChange={mayChange} onOpen={() => onNote(run)} />;
  if (name === "status") return <StatusBadge status={isStatus(value) ? value : run.task.status} />;
  const text = formatValue(t, column, value);
  if (isNumeric(column)) {
    return (
      <div className="flex flex-col items-end leading-tight in-data-dense:flex-row in-data-dense:items-baseline in-data-dense:justify-end in-data-dense:gap-2">
        <span title={typeof value === "number" ? String(value) : undefined}>{text}</span>
        {baseline && baseline !== run && baseline.task.taskId !== run.task.taskId && (
          <Difference column={column} value={value} baseline={baseline.values[name]} />
        )}
      </div>
    );
  }
  const title = kind === "time" && typeof value === "string" ? formatDateTime(value) : text;
  return (
    <div className="truncate" title={title}>
      {text}
    </div>
  );
}

/** The difference from the baseline, and whether that is better or worse: by a sign, a word and a colour. */
function Difference({
  column,
  value,
  baseline,
}: {
  column: ColumnInfo;
  value: RunValue | undefined;
  baseline: RunValue | undefined;
}) {
  const { t } = useTranslation();
  const difference = compareValues(value, baseline, column.higherIsBetter);
  if (!difference) return null;
  const { delta, share, verdict } = difference;
  const Sign = verdict === "better" ? CircleCheck : CircleX;
  const size = column.kind === "duration" ? formatDuration(t, Math.abs(delta)) : formatNumber(Math.abs(delta));
  return (
    <span
      className={cx(
        "inline-flex items-center gap-1 text-xs whitespace-nowrap",
        verdict === "better" ? "text-ok-ink" : verdict === "worse" ? "text-bad-ink" : "text-muted",
      )}
    >
      {verdict && <Sign role="img" aria-label={t(`runs.${verdict}`)} className="size-3" />}
      {delta === 0 ? "±0" : `${delta > 0 ? "+" : "−"}${size}`}
      {share !== undefined && delta !== 0 && ` (${formatShare(share)})`}
    </span>
  );
}

/** Formats a part of the baseline with its sign: +3.4%, −100%, +1,200%. */
function formatShare(share: number): string {
  const percent = Math.abs(share) * 100;
  const digits = percent < 10 ? 1 : 0;
  return `${share > 0 ? "+" : "−"}${Number(percent.toFixed(digits)).toLocaleString()}%`;
}

/** The first line of a note; a press opens it. */
function NoteCell({ run, mayChange, onOpen }: { run: Run; mayChange: boolean; onOpen: () => void }) {
  const { t } = useTranslation();
  const text = summarizeNote(run.note);
  if (!text && !mayChange) return "–";
  return (
    <button
      type="button"
      title={text || undefined}
      onClick={onOpen}
      className={cx(
        "block w-full truncate rounded text-left -outline-offset-2 hover:text-accent-ink hover:underline",
        !text && "text-muted opacity-0 group-hover/row:opacity-100 focus-visible:opacity-100",
      )}
    >
      <span className="sr-only">{t("runs.noteOf", { name: run.task.taskName })} </span>
      {text || t("runs.addNote")}
    </button>
  );
}

/** Returns the beginning of a note without its marks. */
export function summarizeNote(note: string): string {
  const first = parseMarkdown(note).find((block) => block.kind !== "rule");
  if (!first) return "";
  if (first.kind === "code") return first.text.split("\n")[0] ?? "";
  const lines = note.trim().split("\n");
  return (lines[0] ?? "").replace(/^[\s#>*+-]+/, "").replaceAll(/[*`_]{1,3}/g, "");
}

/** The mean of a group, and between which values it is. */
export function AggregateCell({ column, aggregate }: { column: ColumnInfo; aggregate: RunFigures | undefined }) {
  const { t } = useTranslation();
  if (!aggregate || aggregate.mean === null) return null;
  const { mean, min, max, std, count } = aggregate;
  const format = (value: number | null) => formatValue(t, column, value);
  const range = `${format(min)} – ${format(max)}`;
  const title = t("runs.aggregate", { count, range, std: format(std) });
  return (
    <div
      title={title}
      className="flex flex-col items-end leading-tight in-data-dense:flex-row in-data-dense:items-baseline in-data-dense:justify-end in-data-dense:gap-2"
    >
      <span className="font-medium">{format(mean)}</span>
      {count > 1 && min !== max && <span className="text-xs whitespace-nowrap text-muted">{range}</span>}
    </div>
  );
}

import { TriangleAlert } from "lucide-react";
import type { TFunction } from "i18next";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { isFinished } from "@/api/tasks";
import type { TaskBrief } from "@/api/types";
import { cx } from "@/lib/cx";
import {
  formatAge,
  formatDateTime,
  formatDuration,
  formatInteger,
  formatNumber,
  formatTaskScale,
  formatTimeLeft,
  getSecondsBetween,
} from "@/lib/format";
import { ProgressBar } from "@/ui/progress-bar";
import { StatusBadge } from "@/ui/status-badge";
import { MEDIUM_COLUMN, WIDEST_COLUMN } from "@/ui/table";

/** Data of a task's row. */
export interface TaskRowData {
  task: TaskBrief;
  now: number;
  /** The position in the queue, from 1. */
  place: number | undefined;
}

export interface TaskColumn {
  id: string;
  label: string;
  order?: string;
  className: string;
  cell: (shown: TaskRowData) => ReactNode;
}

export const ORDERS = ["name", "status", "framework", "worldSize", "step", "loss", "owner", "createdAt"] as const;

/** Returns the columns that can be hidden. */
export function taskColumns(t: TFunction): TaskColumn[] {
  return [
    {
      id: "framework",
      label: t("tasks.framework"),
      order: "framework",
      className: `${MEDIUM_COLUMN} whitespace-nowrap`,
      cell: ({ task }) => task.framework,
    },
    {
      id: "scale",
      label: t("tasks.scale"),
      order: "-worldSize",
      className: `${MEDIUM_COLUMN} whitespace-nowrap`,
      cell: ({ task }) => formatTaskScale(t, task.nodeCount, task.worldSize),
    },
    {
      id: "progress",
      label: t("tasks.progress"),
      order: "-step",
      className: `${MEDIUM_COLUMN} text-right tabular-nums whitespace-nowrap`,
      cell: ({ task, now }) => <StepCell task={task} now={now} />,
    },
    {
      id: "loss",
      label: t("tasks.loss"),
      order: "loss",
      className: `${MEDIUM_COLUMN} text-right tabular-nums`,
      cell: ({ task }) => <LossCell task={task} />,
    },
    { id: "owner", label: t("tasks.owner"), order: "owner", className: WIDEST_COLUMN, cell: ({ task }) => task.owner },
    {
      id: "created",
      label: t("tasks.created"),
      order: "-createdAt",
      className: `${WIDEST_COLUMN} whitespace-nowrap`,
      cell: ({ task, now }) => <span title={formatDateTime(task.createdAt)}>{formatAge(task.createdAt, now)}</span>,
    },
    {
      id: "duration",
      label: t("tasks.duration"),
      className: `${WIDEST_COLUMN} text-right whitespace-nowrap tabular-nums`,
      cell: ({ task, now }) => formatElapsed(t, task, now) ?? "–",
    },
  ];
}

function LossCell({ task }: { task: TaskBrief }) {
  const text = formatLoss(task);
  return task.lossNotFinite ? <span className="font-medium text-bad-ink">{text}</span> : (text ?? "–");
}

/** Returns the loss, or undefined before the first. */
export function formatLoss(task: TaskBrief): string | undefined {
  if (task.lossNotFinite) return "NaN";
  return task.loss == null ? undefined : formatNumber(task.loss);
}

export function formatElapsed(t: TFunction, task: TaskBrief, now: number): string | undefined {
  if (!task.startedAt) return undefined;
  return formatDuration(t, getSecondsBetween(task.startedAt, isFinished(task) ? (task.endedAt ?? now) : now));
}

/** The current and the total step, and the estimated time left. */
export function StepCell({ task, now }: { task: TaskBrief; now: number }) {
  const { t } = useTranslation();
  const { step, totalSteps, taskName, estimatedEndAt } = task;
  const left = formatTimeLeft(t, estimatedEndAt, now);
  if (step == null) return "–";
  return (
    <>
      {formatInteger(step)}
      {totalSteps ? (
        <>
          <span className="text-muted"> / {formatInteger(totalSteps)}</span>
          <div className="mt-1 min-w-24 in-data-dense:mt-0 md:ml-auto md:max-w-32">
            <ProgressBar small label={taskName} value={Math.min(1, step / totalSteps)} />
          </div>
        </>
      ) : null}
      {left !== undefined && estimatedEndAt && (
        <div
          title={t("task.estimatedEnd", { time: formatDateTime(estimatedEndAt) })}
          className="text-xs whitespace-nowrap text-muted in-data-dense:hidden"
        >
          {t("tasks.left", { time: left })}
        </div>
      )}
    </>
  );
}

/** The status, with a warning sign and the position in the queue. */
export function StatusCell({ t, shown: { task, place } }: { t: TFunction; shown: TaskRowData }) {
  return (
    <span className="inline-flex flex-wrap items-center gap-x-1.5 gap-y-1 in-data-dense:flex-nowrap">
      <StatusBadge status={task.status} />
      {task.finding && (
        <TriangleAlert
          role="img"
          aria-label={t("tasks.troubled", { why: task.finding.message })}
          className={cx("size-4", task.finding.level === "fail" ? "text-bad-ink" : "text-warn-ink")}
        />
      )}
      {place !== undefined && (
        <span className="text-xs whitespace-nowrap text-muted">{t("tasks.place", { place })}</span>
      )}
      {task.attempt > 1 && (
        <span className="text-xs whitespace-nowrap text-muted">{t("tasks.attempt", { number: task.attempt })}</span>
      )}
    </span>
  );
}

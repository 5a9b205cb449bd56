import { TriangleAlert } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { isOver } from "@/api/tasks";
import type { TaskBrief } from "@/api/types";
import { cx } from "@/lib/cx";
import { ago, dateTime, duration, figure, integer, secondsBetween } from "@/lib/format";
import { useNow } from "@/lib/hooks";
import { StatusBadge } from "@/ui/status";
import { MEDIUM, ROW, Table, TICK, TickAll, WIDE } from "@/ui/table";
import { type BulkStop, mayStop } from "./bulk";

/** On a narrow screen the first cell says it all; columns join it as the room grows. */
export function TaskTable({ tasks, bulk }: { tasks: TaskBrief[]; bulk: BulkStop }) {
  const { t } = useTranslation();
  const now = useNow();
  return (
    <Table
      label={t("tasks.title")}
      columns={[
        {
          label: <TickAll ticks={bulk.ticks} label={t("tasks.selectAll")} />,
          className: TICK,
        },
        { label: t("tasks.name") },
        { label: t("tasks.status") },
        { label: t("tasks.framework"), className: MEDIUM },
        { label: t("tasks.scale"), className: MEDIUM },
        { label: t("tasks.progress"), className: `${MEDIUM} text-right` },
        { label: t("tasks.loss"), className: `${MEDIUM} text-right` },
        { label: t("tasks.owner"), className: WIDE },
        { label: t("tasks.created"), className: WIDE },
        { label: t("tasks.duration"), className: `${WIDE} text-right` },
      ]}
    >
      {tasks.map((task) => (
        <Row
          key={task.taskId}
          task={task}
          now={now}
          ticked={bulk.ticks.selected.includes(task.taskId)}
          onTick={() => bulk.ticks.toggle(task.taskId)}
        />
      ))}
    </Table>
  );
}

interface RowProps {
  task: TaskBrief;
  now: number;
  ticked: boolean;
  onTick: () => void;
}

function Row({ task, now, ticked, onTick }: RowProps) {
  const { t } = useTranslation();
  return (
    <tr className={ROW}>
      <td className={TICK}>
        <input
          type="checkbox"
          aria-label={t("tasks.select", { name: task.taskName })}
          disabled={!mayStop(task)}
          checked={ticked}
          onChange={onTick}
        />
      </td>
      <td className="w-full max-w-0 md:w-2/5">
        <Link to={`/training/${task.taskId}`} className="font-medium break-words hover:text-accent-ink hover:underline">
          {task.taskName}
        </Link>
        <div className="truncate font-mono text-xs text-muted">{task.taskId}</div>
        {task.finding ? (
          <div className="mt-0.5 line-clamp-2 text-xs text-muted">{task.finding.message}</div>
        ) : (
          task.reason && <div className="mt-0.5 line-clamp-2 text-xs text-muted">{task.reason.message}</div>
        )}
      </td>
      <td>
        <span className="inline-flex items-center gap-1">
          <StatusBadge status={task.status} />
          {task.finding && (
            <TriangleAlert
              role="img"
              aria-label={t("tasks.troubled", { why: task.finding.message })}
              className={cx("size-4", task.finding.level === "fail" ? "text-bad-ink" : "text-warn-ink")}
            />
          )}
        </span>
        {task.attempt > 1 && (
          <div className="mt-1 text-xs whitespace-nowrap text-muted">
            {t("tasks.attempt", { number: task.attempt })}
          </div>
        )}
      </td>
      <td className={MEDIUM}>{task.framework}</td>
      <td className={`${MEDIUM} whitespace-nowrap`}>
        {t("tasks.scaleValue", { nodes: task.nodeCount, ranks: task.worldSize })}
      </td>
      <td className={`${MEDIUM} text-right tabular-nums`}>{task.step == null ? "–" : integer(task.step)}</td>
      <td className={`${MEDIUM} text-right tabular-nums`}>{task.loss == null ? "–" : figure(task.loss)}</td>
      <td className={WIDE}>{task.owner}</td>
      <td className={`${WIDE} whitespace-nowrap`} title={dateTime(task.createdAt)}>
        {ago(task.createdAt, now)}
      </td>
      <td className={`${WIDE} text-right whitespace-nowrap tabular-nums`}>
        {task.startedAt ? duration(t, secondsBetween(task.startedAt, isOver(task) ? (task.endedAt ?? now) : now)) : "–"}
      </td>
    </tr>
  );
}

import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { TaskBrief } from "@/api/types";
import { useNow } from "@/lib/hooks";
import { ROW, Table, CHECKBOX_CELL, SelectAllCheckbox } from "@/ui/table";
import { type BulkActions, canSelect } from "./use-bulk-actions";
import { formatElapsed, formatLoss, type TaskRowData, StatusCell, StepCell, type TaskColumn } from "./columns";
import { useQueuePositions } from "./use-queue-positions";

interface TaskTableProps {
  tasks: TaskBrief[];
  bulk: BulkActions;
  columns: TaskColumn[];
  ordering: string | undefined;
  onOrder: (ordering: string) => void;
}

/** A table whose first cell is a card on narrow screens; columns appear as there is room. */
export function TaskTable({ tasks, bulk, columns, ordering, onOrder }: TaskTableProps) {
  const { t } = useTranslation();
  const now = useNow();
  const places = useQueuePositions(tasks);
  return (
    <Table
      label={t("tasks.title")}
      ordering={ordering}
      onOrder={onOrder}
      columns={[
        { label: <SelectAllCheckbox ticks={bulk.ticks} label={t("tasks.selectAll")} />, className: CHECKBOX_CELL },
        { label: t("tasks.name"), order: "name" },
        { label: t("tasks.status"), order: "status" },
        ...columns,
      ]}
    >
      {tasks.map((task) => {
        const shown = { task, now, place: places.get(task.taskId) };
        return (
          <tr key={task.taskId} className={ROW}>
            <td className={CHECKBOX_CELL}>
              <input
                type="checkbox"
                aria-label={t("tasks.select", { name: task.taskName })}
                disabled={!canSelect(task)}
                checked={bulk.ticks.selected.includes(task.taskId)}
                onChange={() => bulk.ticks.toggle(task.taskId)}
              />
            </td>
            <td className="w-full max-w-0 md:w-2/5 md:min-w-60">
              <Name shown={shown} />
            </td>
            <td>
              <StatusCell t={t} shown={shown} />
            </td>
            {columns.map(({ id, className, cell }) => (
              <td key={id} className={className}>
                {cell(shown)}
              </td>
            ))}
          </tr>
        );
      })}
    </Table>
  );
}

function Name({ shown }: { shown: TaskRowData }) {
  const { t } = useTranslation();
  const { task, now } = shown;
  const why = (task.finding ?? task.reason)?.message;
  const loss = formatLoss(task);
  const facts = [loss && `${t("tasks.loss")} ${loss}`, formatElapsed(t, task, now)];
  return (
    <>
      <div className="md:in-data-dense:flex md:in-data-dense:items-baseline md:in-data-dense:gap-3">
        <Link
          to={`/training/${task.taskId}`}
          title={task.taskName}
          className="font-medium break-words hover:text-accent-ink hover:underline in-data-dense:shrink-0 in-data-dense:truncate md:in-data-dense:max-w-[70%]"
        >
          {task.taskName}
        </Link>
        <div className="truncate font-mono text-xs text-muted in-data-dense:hidden">{task.taskId}</div>
        {why && (
          <div
            title={why}
            className="mt-0.5 line-clamp-2 text-xs text-muted in-data-dense:mt-0 in-data-dense:line-clamp-1"
          >
            {why}
          </div>
        )}
      </div>
      <div className="mt-1.5 space-y-1.5 text-xs md:hidden">
        {task.step != null && (
          <div className="tabular-nums">
            <span className="text-muted">{t("tasks.progress")} </span>
            <StepCell task={task} now={now} />
          </div>
        )}
        <p className="text-muted tabular-nums">{facts.filter(Boolean).join(" · ")}</p>
      </div>
    </>
  );
}

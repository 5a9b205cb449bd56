import { useTranslation } from "react-i18next";
import type { QueuedTask } from "@/api/types";
import { formatDateTime, formatShortTime } from "@/lib/format";
import { TextLink } from "@/ui/text-link";

/** Number of tasks to name; the others are counted. */
const NAMED = 3;

/** The reason for waiting, and the tasks that must end first. */
export function WaitReason({ waiter: { reason, after } }: { waiter: QueuedTask }) {
  const { t } = useTranslation();
  const rest = after.length - NAMED;
  return (
    <div className="space-y-1 break-words">
      {reason && <div title={reason.hint || undefined}>{reason.message}</div>}
      {after.length > 0 && (
        <div className="text-xs text-muted">
          {t("queue.after")}
          {after.slice(0, NAMED).map(({ taskId, name, until }, index) => (
            <span key={taskId ?? index}>
              {index > 0 && t("queue.comma")}
              {taskId ? <TextLink to={`/training/${taskId}`}>{name}</TextLink> : t("queue.anonymous")}
              {until && ` (${t("queue.until", { time: formatShortTime(until) })})`}
            </span>
          ))}
          {rest > 0 && t("queue.afterMore", { count: rest })}
        </div>
      )}
    </div>
  );
}

/** The estimated start and its range. */
export function EstimatedStart({ waiter: { begins, early, late }, now }: { waiter: QueuedTask; now: number }) {
  const { t } = useTranslation();
  if (!begins) {
    return (
      <span className="whitespace-nowrap text-muted" title={t("queue.unknownHint")}>
        {t("queue.unknown")}
      </span>
    );
  }
  const soon = new Date(begins).getTime() <= now;
  return (
    <div className="whitespace-nowrap tabular-nums" title={formatDateTime(begins)}>
      {soon ? t("queue.anyMoment") : t("queue.about", { time: formatShortTime(begins) })}
      {early && late && early !== late && (
        <div className="text-xs text-muted">
          {formatShortTime(early)} – {formatShortTime(late)}
        </div>
      )}
    </div>
  );
}

import { useTranslation } from "react-i18next";
import type { Task, TaskBrief } from "@/api/types";
import { Badge } from "@/ui/badge";

/** Badges of a task in the queue: priority, preemptible, borrowed. */
export function QueueBadges({ task }: { task: Task | TaskBrief }) {
  const { t } = useTranslation();
  return (
    <>
      {task.paused && <Badge tone="warn">{t("task.paused")}</Badge>}
      {task.priorityClass !== "normal" && <Badge>{t(`create.choice.priority.${task.priorityClass}`)}</Badge>}
      {task.preemptible && <Badge title={t("create.preemptibleHint")}>{t("task.preemptible")}</Badge>}
      {task.borrowed && (
        <Badge tone="info" title={t("task.borrowedHint")}>
          {t("task.borrowed")}
        </Badge>
      )}
    </>
  );
}

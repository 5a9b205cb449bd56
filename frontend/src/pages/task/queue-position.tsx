import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { taskQueueQuery } from "@/api/sharing";
import type { Task } from "@/api/types";
import { formatDateTime } from "@/lib/format";
import { ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";
import { DefinitionList } from "@/ui/table";

/** The position of a waiting task, its estimated start, what must end first, and how to start sooner. */
export default function QueuePosition({ task }: { task: Task }) {
  const { t } = useTranslation();
  const queue = useQuery(taskQueueQuery(task.taskId)).data;
  if (!queue) return null;
  const { number, of, begins, early, late, after, sooner, engine } = queue;
  const facts: [string, ReactNode][] = [];
  if (number != null) facts.push([t("task.queue.place"), t("task.queue.placeOf", { number, of })]);
  if (number != null) {
    facts.push([
      t("task.queue.begins"),
      begins ? (
        <span title={early && late ? `${formatDateTime(early)} – ${formatDateTime(late)}` : undefined}>
          {formatDateTime(begins)}
          {early && late && early !== late && (
            <span className="block text-xs font-normal text-muted">
              {formatDateTime(early)} – {formatDateTime(late)}
            </span>
          )}
        </span>
      ) : (
        t("task.queue.noEstimate")
      ),
    ]);
  }
  if (engine) {
    facts.push([t("task.queue.engine"), engine.position != null ? `#${engine.position}` : "–"]);
    if (engine.reason) facts.push([t("task.queue.engineSays"), engine.reason]);
  }
  if (facts.length === 0) return null;
  return (
    <Card
      title={t("task.queue.title")}
      aside={
        <Link className="text-sm text-accent-ink hover:underline" to="/queue">
          {t("task.queue.all")}
        </Link>
      }
    >
      <DefinitionList facts={facts} />
      {after.length > 0 && (
        <>
          <h3 className="mt-3 mb-1 text-sm font-medium">{t("task.queue.after")}</h3>
          <ul className="space-y-1 text-sm">
            {after.map(({ taskId, name, until }, index) => (
              <li key={taskId ?? index} className="flex justify-between gap-2">
                {taskId ? (
                  <Link to={`/training/${taskId}`} className="min-w-0 truncate text-accent-ink hover:underline">
                    {name}
                  </Link>
                ) : (
                  <span className="text-muted">{t("task.queue.others")}</span>
                )}
                <span className="shrink-0 text-muted">{until ? formatDateTime(until) : ""}</span>
              </li>
            ))}
          </ul>
        </>
      )}
      {sooner.length > 0 && (
        <>
          <h3 className="mt-3 mb-1 text-sm font-medium">{t("task.queue.sooner")}</h3>
          <ul className="list-inside list-disc space-y-1 text-sm">
            {sooner.map(({ code, message }) => (
              <li key={code + message}>{message}</li>
            ))}
          </ul>
          <div className="mt-2">
            <ButtonLink size="sm" to={`/training/create?from=${task.taskId}`}>
              {t("task.queue.change")}
            </ButtonLink>
          </div>
        </>
      )}
    </Card>
  );
}

import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { Task } from "@/api/types";
import { dateTime, integer } from "@/lib/format";
import { stepOf } from "@/lib/step";
import { Card } from "@/ui/card";
import { Notes } from "@/ui/notes";
import { Facts as FactList } from "@/ui/table";

export function Facts({ task }: { task: Task }) {
  const { t } = useTranslation();
  const facts: [string, ReactNode][] = [
    [t("task.framework"), task.framework],
    [t("task.dataset"), [task.datasetId, task.datasetVersionId].filter(Boolean).join(" / ") || "–"],
    [t("task.model"), task.modelId || "–"],
    ...stepOf(task.batch, t),
    [t("task.restarts"), task.maxRestarts],
    [t("task.owner"), task.owner],
    [t("create.project"), task.projectName],
    ...(task.maxRunSeconds == null
      ? []
      : ([[t("create.maxRunSeconds"), integer(task.maxRunSeconds)]] as [string, ReactNode][])),
    [t("task.created"), dateTime(task.createdAt)],
  ];
  if (task.preflightId) {
    facts.push([
      t("preflight.ofTask"),
      <Link
        to={`/preflight/${task.preflightId}`}
        className="font-mono text-xs break-all text-accent-ink hover:underline"
      >
        {task.preflightId}
      </Link>,
    ]);
  }
  return (
    <Card title={t("task.facts")}>
      <FactList facts={facts} />
      {task.warnings.length > 0 && (
        <div className="mt-3">
          <Notes
            label={t("task.warnings")}
            notes={task.warnings.map(({ code, message }) => ({ id: code, level: "warn", message }))}
          />
        </div>
      )}
    </Card>
  );
}

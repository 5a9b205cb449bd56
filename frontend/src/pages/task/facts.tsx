import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { Task } from "@/api/types";
import { dateTime, integer } from "@/lib/format";
import { showName } from "@/lib/names";
import { stepOf } from "@/lib/step";
import { Card } from "@/ui/card";
import { Fold } from "@/ui/fold";
import { Notes } from "@/ui/notes";
import { WhereRanksRun } from "@/ui/runs-in";
import { Facts as FactList } from "@/ui/table";

export function Facts({ task }: { task: Task }) {
  const { t } = useTranslation();
  const facts: [string, ReactNode][] = [
    [t("task.framework"), task.framework],
    [t("task.dataset"), named([task.datasetName, task.datasetVersionName], [task.datasetId, task.datasetVersionId])],
    [t("task.model"), named([task.modelName], [task.modelId])],
    ...scriptOf(task).map((script): [string, ReactNode] => [
      t("task.script"),
      <code key="script" className="text-xs break-all">
        {showName(script)}
      </code>,
    ]),
    ...interpreterOf(task).map((python): [string, ReactNode] => [
      t("runsIn.python"),
      <code key="python" className="text-xs break-all">
        {showName(python)}
      </code>,
    ]),
    ...stepOf(task.batch, t),
    [t("task.restarts"), task.maxRestarts],
    [t("task.owner"), task.owner],
    [t("create.project"), task.projectName],
    ...(task.maxRunSeconds == null
      ? []
      : ([[t("create.maxRunSeconds"), integer(task.maxRunSeconds)]] as [string, ReactNode][])),
    [t("task.created"), dateTime(task.createdAt)],
  ];
  const settings = hyperparametersOf(task);
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
      {task.nodes.some(({ runsIn }) => runsIn) && (
        <div className="mt-3 space-y-1">
          <h3 className="text-sm text-muted">{t("runsIn.title")}</h3>
          <WhereRanksRun places={task.nodes} />
        </div>
      )}
      {settings.length > 0 && (
        <div className="mt-3">
          <Fold title={t("task.hyperparameters", { count: settings.length })} wanted={false} summaryClassName="text-sm">
            <FactList facts={settings} />
          </Fold>
        </div>
      )}
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

/** What people call it; its ids are there for whoever needs them. */
function named(names: (string | null)[], ids: (string | null)[]): ReactNode {
  const [name, id] = [names, ids].map((parts) => parts.filter(Boolean).join(" / "));
  return name ? <span title={id}>{name}</span> : id || "–";
}

interface Request {
  distributedConfig?: { python?: string | null };
  entrypoint?: { script?: string; module?: string; args?: unknown[] };
  hyperparameters?: Record<string, unknown>;
}

/** As it was asked for: a script of the user's own, with its arguments. */
function scriptOf(task: Task): string[] {
  const { script, module, args = [] } = (task.request as Request).entrypoint ?? {};
  const what = script ?? (module && `-m ${module}`);
  return what ? [[what, ...args].join(" ")] : [];
}

function interpreterOf(task: Task): string[] {
  const { python } = (task.request as Request).distributedConfig ?? {};
  return python ? [python] : [];
}

function hyperparametersOf(task: Task): [string, ReactNode][] {
  const given = Object.entries((task.request as Request).hyperparameters ?? {});
  return given.map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]);
}

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { canReadEvents, meQuery } from "@/api/session";
import type { Task } from "@/api/types";
import { buildAuditAddress } from "@/lib/audit-address";
import { formatDateTime, formatInteger } from "@/lib/format";
import { escapeName } from "@/lib/escape-name";
import { describeOptimizerStep } from "@/lib/optimizer-step";
import { Card } from "@/ui/card";
import { Collapsible } from "@/ui/collapsible";
import { MessageList } from "@/ui/message-list";
import { RankPlacement } from "@/ui/rank-placement";
import { DefinitionList as FactList } from "@/ui/table";
import { TextLink } from "@/ui/text-link";

export function TaskFacts({ task }: { task: Task }) {
  const { t } = useTranslation();
  const me = useQuery(meQuery).data;
  const facts: [string, ReactNode][] = [
    [t("task.framework"), task.framework],
    [
      t("task.dataset"),
      formatNamed([task.datasetName, task.datasetVersionName], [task.datasetId, task.datasetVersionId]),
    ],
    [t("task.model"), formatNamed([task.modelName], [task.modelId])],
    ...formatScript(task).map((script): [string, ReactNode] => [
      t("task.script"),
      <code key="script" className="text-xs break-all">
        {escapeName(script)}
      </code>,
    ]),
    ...formatInterpreter(task).map((python): [string, ReactNode] => [
      t("runsIn.python"),
      <code key="python" className="text-xs break-all">
        {escapeName(python)}
      </code>,
    ]),
    ...describeOptimizerStep(task.batch, t),
    [t("task.restarts"), task.maxRestarts],
    [t("task.owner"), task.owner],
    [t("create.project"), task.projectName],
    ...(task.maxRunSeconds == null
      ? []
      : ([[t("create.maxRunSeconds"), formatInteger(task.maxRunSeconds)]] as [string, ReactNode][])),
    [t("task.created"), formatDateTime(task.createdAt)],
  ];
  const settings = formatHyperparameters(task);
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
  for (const each of task.after) {
    facts.push([
      t(`task.after.${each.on}`),
      <Link key={each.taskId} to={`/training/${each.taskId}`} className="break-all text-accent-ink hover:underline">
        {escapeName(each.name || each.taskId)}
      </Link>,
    ]);
  }
  if (canReadEvents(me, task.projectId)) {
    facts.push([
      t("app.audit"),
      <TextLink to={buildAuditAddress({ target: task.taskId })}>{t("task.auditEvents")}</TextLink>,
    ]);
  }
  return (
    <Card title={t("task.facts")}>
      <FactList facts={facts} />
      {task.nodes.some(({ runsIn }) => runsIn) && (
        <div className="mt-3 space-y-1">
          <h3 className="text-sm text-muted">{t("runsIn.title")}</h3>
          <RankPlacement places={task.nodes} />
        </div>
      )}
      {settings.length > 0 && (
        <div className="mt-3">
          <Collapsible
            title={t("task.hyperparameters", { count: settings.length })}
            wanted={false}
            summaryClassName="text-sm"
          >
            <FactList facts={settings} />
          </Collapsible>
        </div>
      )}
      {task.warnings.length > 0 && (
        <div className="mt-3">
          <MessageList
            label={t("task.warnings")}
            notes={task.warnings.map(({ code, message }) => ({ id: code, level: "warn", message }))}
          />
        </div>
      )}
    </Card>
  );
}

/** Returns the names, followed by the ids. */
function formatNamed(names: (string | null)[], ids: (string | null)[]): ReactNode {
  const [name, id] = [names, ids].map((parts) => parts.filter(Boolean).join(" / "));
  return name ? <span title={id}>{name}</span> : id || "–";
}

interface Request {
  distributedConfig?: { python?: string | null };
  entrypoint?: { script?: string; module?: string; command?: string[]; args?: unknown[] };
  hyperparameters?: Record<string, unknown>;
}

/** Returns the user's script with its arguments. */
function formatScript(task: Task): string[] {
  const { script, module, command, args = [] } = (task.request as Request).entrypoint ?? {};
  const what = (script ?? (module && `-m ${module}`)) || command?.join(" ");
  return what ? [[what, ...args].join(" ")] : [];
}

function formatInterpreter(task: Task): string[] {
  const { python } = (task.request as Request).distributedConfig ?? {};
  return python ? [python] : [];
}

function formatHyperparameters(task: Task): [string, ReactNode][] {
  const given = Object.entries((task.request as Request).hyperparameters ?? {});
  return given.map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]);
}

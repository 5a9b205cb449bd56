import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Ban, CircleCheck, ClipboardCheck, Play } from "lucide-react";
import { lazy, Suspense } from "react";
import { useTranslation } from "react-i18next";
import { Link, useParams, useSearchParams } from "react-router";
import { cordonMutation, environmentQuery } from "@/api/environments";
import { ApiError } from "@/api/errors";
import type { ManagedEnvironment } from "@/api/managed-environments";
import { isMaintainer, meQuery } from "@/api/session";
import { tasksQuery } from "@/api/tasks";
import type { Environment } from "@/api/types";
import { withPageTexts } from "@/i18n";
import { formatAge, formatDateTime, formatDuration, formatInteger, formatTaskScale } from "@/lib/format";
import { useNow } from "@/lib/hooks";
import { useTaskNames } from "@/lib/use-task-names";
import { Callout } from "@/ui/badge";
import { Button, ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { EmptyState } from "@/ui/empty-state";
import { EnvironmentBadges } from "@/ui/environment-badges";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { GpuSummary } from "@/ui/gpu-summary";
import { EnvironmentActions } from "@/ui/managed-environment/actions";
import { Page } from "@/ui/page";
import { StatusBadge } from "@/ui/status-badge";
import { DefinitionList } from "@/ui/table";
import { Tabs } from "@/ui/tabs";
import { TaskLink as HolderName } from "@/ui/task-link";
import { BrowserLinks, RunHistory as LifeHistory, Kernels, Lifecycle, Warnings } from "./lifecycle";
import { EnvironmentLogs } from "./logs";
import { WarmProcess } from "./warm-process";

const Machine = lazy(() => import("@/ui/telemetry/machine-history"));
const Terminal = lazy(() => withPageTexts(import("@/ui/terminal")));

export function Component() {
  const { t } = useTranslation();
  const { id = "" } = useParams();
  const environment = useQuery(environmentQuery(id));
  if (environment.error instanceof ApiError && environment.error.status === 404) {
    const hint = t(environment.data ? "environments.accessLost" : "environments.notFoundHint");
    return (
      <Page title={t("environments.notFound")}>
        <EmptyState title={t("environments.notFound")} hint={hint}>
          <ButtonLink look="primary" to="/environments">
            {t("environments.backToList")}
          </ButtonLink>
        </EmptyState>
      </Page>
    );
  }
  if (environment.data) return <EnvironmentPage key={id} environment={environment.data} />;
  return environment.isError ? (
    <LoadError error={environment.error} retry={() => void environment.refetch()} />
  ) : (
    <Loading />
  );
}

function EnvironmentPage({ environment }: { environment: Environment }) {
  const { t } = useTranslation();
  const me = useQuery(meQuery).data;
  const { name, notSelectableReason: obstacle } = environment;
  const hosted = environment.hosted;
  return (
    <Page
      title={name}
      heading={
        <span className="flex flex-wrap items-center gap-x-3 gap-y-1">
          {name}
          <EnvironmentBadges environment={environment} />
          <span className="font-mono text-xs font-normal text-muted">{environment.id}</span>
        </span>
      }
      actions={
        <>
          {hosted && <EnvironmentActions environment={environment} hosted={hosted} />}
          {!obstacle && (
            <ButtonLink look="primary" to={`/training/create?environments=${environment.id}`}>
              <Play />
              {t("environments.train")}
            </ButtonLink>
          )}
          <ButtonLink to={`/preflight/create?environments=${environment.id}`}>
            <ClipboardCheck />
            {t("preflight.run")}
          </ButtonLink>
          {isMaintainer(me, environment.projectId) && <CordonButton environment={environment} />}
        </>
      }
    >
      {hosted && <Warnings environment={environment} hosted={hosted} />}
      {obstacle && !(hosted && hosted.state !== "running") && (
        <div className="mb-4">
          <Callout tone="warn">{obstacle.message}</Callout>
        </div>
      )}
      <div className="grid items-start gap-4 lg:grid-cols-[22rem_minmax(0,1fr)]">
        <div className="space-y-4">
          {hosted && <Lifecycle hosted={hosted} />}
          {hosted && <BrowserLinks environment={environment} hosted={hosted} />}
          {hosted?.state === "running" && <Kernels environment={environment} hosted={hosted} />}
          <Holder environment={environment} hosted={hosted} />
          <WarmProcess environment={environment} />
          <Hardware environment={environment} />
        </div>
        <div className="min-w-0 space-y-4">
          {hosted && <Inside environment={environment} hosted={hosted} />}
          <Suspense fallback={<Loading tall />}>
            <Machine kind="environment" id={environment.id} />
          </Suspense>
          <History id={environment.id} />
        </div>
      </div>
    </Page>
  );
}

/** Events, log and terminal. `?tab=terminal` opens the terminal. */
function Inside({ environment: { id, name }, hosted }: { environment: Environment; hosted: ManagedEnvironment }) {
  const { t } = useTranslation();
  const [params, setParams] = useSearchParams();
  const tab = params.get("tab") ?? "life";
  const open = (next: string) => setParams(next === "life" ? {} : { tab: next }, { replace: true });
  const opens = hosted.allowedActions.includes("open");
  return (
    <section className="rounded-xl border bg-surface shadow-xs">
      <Tabs
        label={name}
        open={tab}
        onOpen={open}
        tabs={[
          { id: "life", label: t("managedEnvironment.events"), content: <LifeHistory id={id} /> },
          {
            id: "logs",
            label: t("managedEnvironment.logs"),
            content: <EnvironmentLogs key={hosted.run} id={id} run={hosted.run} />,
          },
          {
            id: "terminal",
            label: t("managedEnvironment.terminal"),
            content: opens ? (
              <Suspense fallback={<Loading />}>
                <Terminal
                  path={`/api/v1/dev-environments/${id}/channel`}
                  label={`${t("managedEnvironment.terminal")} ${name}`}
                />
              </Suspense>
            ) : (
              <p className="py-8 text-center text-sm text-muted">
                {t(
                  hosted.allowedActions.length > 0 ? "managedEnvironment.notRunning" : "managedEnvironment.noTerminal",
                )}
              </p>
            ),
          },
        ]}
      />
    </section>
  );
}

function CordonButton({ environment: { id, cordoned } }: { environment: Environment }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const change = useMutation({ ...cordonMutation(client, id), onError: (error) => toastError(t, error) });
  const action = t(cordoned ? "environments.uncordon" : "environments.cordon");
  return (
    <ConfirmDialog
      title={t(cordoned ? "environments.uncordonTitle" : "environments.cordonTitle")}
      description={t(cordoned ? "environments.uncordonHint" : "environments.cordonHint")}
      action={action}
      onConfirm={() => change.mutate(!cordoned)}
      trigger={
        <Button disabled={change.isPending}>
          {cordoned ? <CircleCheck /> : <Ban />}
          {action}
        </Button>
      }
    />
  );
}

function Holder({ environment, hosted }: { environment: Environment; hosted: ManagedEnvironment | null }) {
  const { t } = useTranslation();
  const { id, heldBy } = environment;
  const history = useQuery(tasksQuery({ environment: id, page: 1 }));
  const task = history.data?.items.find(({ taskId }) => taskId === heldBy);
  const names = useTaskNames([heldBy]);
  return (
    <Card title={t("environments.usedNow")}>
      {heldBy ? (
        <p className="flex flex-wrap items-center gap-2 text-sm">
          <HolderName id={heldBy} names={names} className="font-medium" />
          {task && <StatusBadge status={task.status} />}
          {task && <span className="text-muted">{task.owner}</span>}
          {hosted && <span className="text-xs text-muted">{t("managedEnvironment.heldHint")}</span>}
        </p>
      ) : (
        <p className="text-sm text-muted">{t("environments.freeHint")}</p>
      )}
    </Card>
  );
}

function Hardware({ environment: each }: { environment: Environment }) {
  const { t } = useTranslation();
  const versions = Object.entries(each.versions).map(([name, version]) => `${name} ${version}`);
  return (
    <Card title={t("environments.facts")}>
      <DefinitionList
        facts={[
          ["GPU", <GpuSummary key="gpu" type={each.gpuType} count={each.gpuCount} emulated={each.emulated} />],
          [
            t("environments.cpuAndMemory"),
            t("environments.cpuAndMemoryValue", { count: each.cpuCores, memory: formatInteger(each.memoryGb) }),
          ],
          [t("environments.zone"), each.zone.name],
          [t("environments.kind"), t(`environments.kindOf.${each.kind}`)],
          [t("environments.stack"), each.stack || "–"],
          [t("environments.image"), each.image || "–"],
          [t("environments.host"), each.host || "–"],
          ["IP", each.ip ?? "–"],
          [t("environments.cluster"), `${each.clusterId} (${each.backend})`],
          [t("environments.owner"), each.owner ?? "–"],
          [t("environments.uptime"), each.uptimeSeconds == null ? "–" : formatDuration(t, each.uptimeSeconds)],
          [t("environments.versions"), versions.join(", ") || "–"],
        ]}
      />
    </Card>
  );
}

function History({ id }: { id: string }) {
  const { t } = useTranslation();
  const now = useNow();
  const tasks = useQuery(tasksQuery({ environment: id, page: 1 }));
  return (
    <Card
      title={t("environments.history")}
      aside={
        <Link to={`/training?environment=${id}`} className="text-sm text-accent-ink hover:underline">
          {t("environments.allTasks")}
        </Link>
      }
    >
      {tasks.isError && <LoadError error={tasks.error} retry={() => void tasks.refetch()} />}
      {tasks.isPending && <Loading />}
      {tasks.data?.items.length === 0 && <EmptyState title={t("environments.noHistory")} />}
      <ul className="divide-y text-sm">
        {tasks.data?.items.map((task) => (
          <li key={task.taskId} className="flex flex-wrap items-center gap-x-3 gap-y-1 py-2.5">
            <Link to={`/training/${task.taskId}`} className="min-w-0 font-medium break-words hover:underline">
              {task.taskName}
            </Link>
            <StatusBadge status={task.status} />
            <span className="text-muted">{task.owner}</span>
            <span className="text-muted">{formatTaskScale(t, task.nodeCount, task.worldSize)}</span>
            <time dateTime={task.createdAt} title={formatDateTime(task.createdAt)} className="ml-auto text-muted">
              {formatAge(task.createdAt, now)}
            </time>
          </li>
        ))}
      </ul>
    </Card>
  );
}

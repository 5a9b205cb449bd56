import { useQuery } from "@tanstack/react-query";
import { CloudOff } from "lucide-react";
import { lazy, Suspense, useCallback, useMemo } from "react";
import { useTranslation } from "react-i18next";
import { useParams } from "react-router";
import { ApiError } from "@/api/errors";
import type { RankChoice } from "@/api/logs";
import { type TaskStream, useTaskStream } from "@/api/stream";
import { canCreate, meQuery } from "@/api/session";
import { diagnosisQuery, isFinished, metricsQuery, taskQuery } from "@/api/tasks";
import type { Metric, Task } from "@/api/types";
import { withPageTexts } from "@/i18n";
import { formatTime } from "@/lib/format";
import { useDebounced } from "@/lib/hooks";
import { Badge, Callout } from "@/ui/badge";
import { ButtonLink } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { Page } from "@/ui/page";
import { StatusBadge, getStatusTone } from "@/ui/status-badge";
import { type Tab, Tabs } from "@/ui/tabs";
import { Actions } from "./actions";
import { listBlamedRanks, DEFAULT_TAB, useTaskUrlState } from "./use-task-url-state";
import { Charts } from "./charts";
import { useTaskCommands } from "./commands";
import { Checkpoints, Events, RenderedPlan, Reuse } from "./details";
import { Drill } from "./drill";
import { Elastic } from "./elastic";
import { TaskFacts } from "./task-facts";
import { Logs } from "./logs";
import { TaskProgress } from "./task-progress";
import QueuePosition from "./queue-position";
import { MAX_RANKS_BESIDE, Ranks } from "./ranks";
import { QueueBadges } from "./queue-badges";
import { MeasuredSpeedUp } from "./measured-speed-up";
import { Timeline } from "./timeline";
import TaskUsage from "./task-usage";
import DiagnosisPanel from "./diagnosis";

const TaskCode = lazy(() => withPageTexts(import("./task-code")));
const Terminal = lazy(() => withPageTexts(import("./rank-terminal")));
const TaskTelemetry = lazy(() => import("./task-telemetry"));
const Media = lazy(() => withPageTexts(import("./media")));
const Parameters = lazy(() => withPageTexts(import("./parameters")));
const TagsAndNote = lazy(() => withPageTexts(import("./tags-and-note")));
const Outputs = lazy(() => withPageTexts(import("./outputs")));
const TrackerRuns = lazy(() => withPageTexts(import("./tracker-runs")));

/** How long the page waits for the first diagnosis. */
const MAX_DIAGNOSIS_WAIT_MS = 1000;
const NO_METRICS: Metric[] = [];

export function Component() {
  const { t } = useTranslation();
  const { id = "" } = useParams();
  const task = useQuery(taskQuery(id));
  useQuery(metricsQuery(id));
  const diagnosis = useQuery(diagnosisQuery(id, true));
  const waited = useDebounced(task.data !== undefined, MAX_DIAGNOSIS_WAIT_MS);
  if (task.error instanceof ApiError && task.error.status === 404) {
    const hint = t(task.data ? "task.accessLost" : "task.notFoundHint");
    return (
      <Page title={t("task.notFound")}>
        <EmptyState title={t("task.notFound")} hint={hint}>
          <ButtonLink look="primary" to="/training">
            {t("app.backToTasks")}
          </ButtonLink>
        </EmptyState>
      </Page>
    );
  }
  // The diagnosis is at the top, so the page waits for it, but not if it fails or is slow.
  if (task.data && (waited || !diagnosis.isPending || diagnosis.failureCount > 0))
    return <TaskPage key={id} task={task.data} />;
  return task.isError ? <LoadError error={task.error} retry={() => void task.refetch()} /> : <Loading />;
}

function TaskPage({ task }: { task: Task }) {
  const { t } = useTranslation();
  const id = task.taskId;
  useTaskCommands(task);
  const diagnosis = useQuery(diagnosisQuery(id, isFinished(task))).data;
  const blamed = useMemo(() => listBlamedRanks(diagnosis, task.attempt), [diagnosis, task.attempt]);
  const { tab, rank, show } = useTaskUrlState(task, blamed);
  const setRank = useCallback((rank: RankChoice) => show({ rank }), [show]);
  const feed = useTaskStream(id, rank, isFinished(task));
  const { data: metrics = NO_METRICS, isPending: loading } = useQuery(metricsQuery(id));
  const open = (tab: string, rank: number) => {
    show({ tab, rank });
    document.getElementById("details")?.scrollIntoView({ block: "nearest" });
  };
  const readRank = (rank: number) => open("logs", rank);
  const shells = canCreate(useQuery(meQuery).data, task.projectId) && !isFinished(task);
  const wide = task.worldSize > MAX_RANKS_BESIDE;
  const ranks = (
    <Ranks
      task={task}
      chosen={rank}
      blamed={blamed}
      onPin={setRank}
      onRead={readRank}
      onCharts={(rank) => open("machines", rank)}
    />
  );
  const tabs: Tab[] = [
    {
      id: "logs",
      label: t("task.logs"),
      content: <Logs task={task} rank={rank} onRank={setRank} />,
    },
    {
      id: "machines",
      label: t("machines.title"),
      content: (
        <Suspense fallback={<Loading />}>
          <TaskTelemetry task={task} metrics={metrics} rank={typeof rank === "number" ? rank : undefined} />
        </Suspense>
      ),
    },
    ...(shells
      ? [
          {
            id: "terminal",
            label: t("task.terminal"),
            content: (
              <Suspense fallback={<Loading />}>
                <Terminal task={task} rank={typeof rank === "number" ? rank : 0} onRank={setRank} />
              </Suspense>
            ),
          },
        ]
      : []),
    { id: "events", label: t("task.events"), content: <Events id={id} /> },
    { id: "checkpoints", label: t("task.checkpoints"), content: <Checkpoints id={id} /> },
    { id: "files", label: t("task.files"), content: <RenderedPlan task={task} /> },
    {
      id: "code",
      label: t("task.code"),
      content: (
        <Suspense fallback={<Loading />}>
          <TaskCode id={id} />
        </Suspense>
      ),
    },
    { id: "reuse", label: t("task.reuse"), content: <Reuse task={task} /> },
  ];
  return (
    <Page title={task.taskName} heading={<Heading task={task} feed={feed} />} actions={<Actions task={task} />}>
      <DiagnosisPanel task={task} onRank={readRank}>
        <Reason task={task} />
      </DiagnosisPanel>
      <div className="grid gap-4 lg:grid-cols-[minmax(0,1fr)_22rem]">
        <div className="min-w-0 space-y-4">
          <TaskProgress task={task} metrics={metrics} />
          {wide && ranks}
          <Charts task={task} metrics={metrics} loading={loading} />
          <Suspense>
            <Media task={task} />
          </Suspense>
          <section id="details" className="scroll-mt-16 rounded-xl border bg-surface shadow-xs">
            <Tabs
              label={task.taskName}
              open={tabs.some(({ id }) => id === tab) ? tab : DEFAULT_TAB}
              onOpen={(tab) => show({ tab })}
              tabs={tabs}
            />
          </section>
        </div>
        <aside className="min-w-0 space-y-4">
          {task.status === "queued" && !task.paused && <QueuePosition task={task} />}
          {task.elastic && <Elastic task={task} elastic={task.elastic} />}
          {!wide && ranks}
          <Timeline task={task} />
          <TaskFacts task={task} />
          <Suspense>
            <TagsAndNote task={task} />
          </Suspense>
          <Suspense>
            <Parameters task={task} />
          </Suspense>
          <TaskUsage task={task} />
          <Suspense>
            <Outputs task={task} />
          </Suspense>
          <Suspense>
            <TrackerRuns task={task} />
          </Suspense>
          <Drill task={task} />
          {task.ranks.length > 1 && <MeasuredSpeedUp id={id} points={metrics.length} />}
        </aside>
      </div>
    </Page>
  );
}

function Reason({ task }: { task: Task }) {
  const { t } = useTranslation();
  if (!task.reason) return null;
  return (
    <div className="mb-4">
      <Callout tone={getStatusTone(task.status)}>
        <p className="font-medium">{task.reason.message}</p>
        {task.reason.hint && (
          <p className="mt-0.5">
            {t("task.hint")}
            {task.reason.hint}
          </p>
        )}
      </Callout>
    </div>
  );
}

function Heading({ task, feed }: { task: Task; feed: TaskStream }) {
  return (
    <span className="flex flex-wrap items-center gap-x-3 gap-y-1">
      {task.taskName}
      <span role="status" className="flex items-center gap-2 font-normal">
        <StatusBadge status={task.status} />
        <QueueBadges task={task} />
        <StreamIndicator feed={feed} />
      </span>
      <span className="basis-full font-mono text-xs font-normal text-muted sm:basis-auto">{task.taskId}</span>
    </span>
  );
}

/** Whether the page is updated live, and since when it is not. */
function StreamIndicator({ feed: { state, since } }: { feed: TaskStream }) {
  const { t } = useTranslation();
  if (state === "ended") return null;
  if (state === "stale") {
    return (
      <Badge tone="warn">
        <CloudOff aria-hidden className="size-3.5" />
        {t("task.stale", { time: formatTime(new Date(since).toISOString()) })}
      </Badge>
    );
  }
  return (
    <span className="inline-flex min-w-20 items-center gap-1.5 text-xs text-muted">
      {state === "live" && <span aria-hidden className="size-1.5 rounded-full bg-ok" />}
      {t(`task.${state}`)}
    </span>
  );
}

import { useQuery } from "@tanstack/react-query";
import { CloudOff } from "lucide-react";
import { lazy, Suspense, useCallback, useMemo } from "react";
import { useTranslation } from "react-i18next";
import { useParams } from "react-router";
import { ApiError } from "@/api/errors";
import type { RankChoice } from "@/api/logs";
import { type Feed, useTaskFeed } from "@/api/stream";
import { mayMake, meQuery } from "@/api/session";
import { diagnosisQuery, isOver, metricsQuery, taskQuery } from "@/api/tasks";
import type { Metric, Task } from "@/api/types";
import { withTexts } from "@/i18n";
import { clockTime } from "@/lib/format";
import { useSettled } from "@/lib/hooks";
import { Badge, Note } from "@/ui/badge";
import { ButtonLink } from "@/ui/button";
import { Empty } from "@/ui/empty";
import { Failure, Loading } from "@/ui/failure";
import { Page } from "@/ui/page";
import { StatusBadge, statusTone } from "@/ui/status";
import { type Tab, Tabs } from "@/ui/tabs";
import { Actions } from "./actions";
import { blamedRanks, FIRST_TAB, useTaskAddress } from "./address";
import { Charts } from "./charts";
import { useTaskCommands } from "./commands";
import { Checkpoints, Events, Rendered, Reuse } from "./details";
import { Drill } from "./drill";
import { Elastic } from "./elastic";
import { Facts } from "./facts";
import { Logs } from "./logs";
import { Progress } from "./progress";
import Queue from "./queue";
import { MOST_BESIDE, Ranks } from "./ranks";
import { SharingBadges } from "./sharing";
import { Speed } from "./speed";
import { Timeline } from "./timeline";
import Usage from "./usage";
import Why from "./why";

const CodeOfTask = lazy(() => withTexts(import("./code"), "code"));
const Terminal = lazy(() => withTexts(import("./terminal"), "terminal"));
const Machines = lazy(() => import("./machines"));
const Outputs = lazy(() => withTexts(import("./outputs"), "files"));

/** For the first diagnosis, once the task is there. */
const MAX_WAIT_MS = 1000;
const NO_METRICS: Metric[] = [];

export function Component() {
  const { t } = useTranslation();
  const { id = "" } = useParams();
  const task = useQuery(taskQuery(id));
  useQuery(metricsQuery(id));
  const diagnosis = useQuery(diagnosisQuery(id, true));
  const waited = useSettled(task.data !== undefined, MAX_WAIT_MS);
  // What stands above all else moves nothing if it comes with the page; one that fails or is slow is not waited for.
  if (task.data && (waited || !diagnosis.isPending || diagnosis.failureCount > 0))
    return <TaskPage key={id} task={task.data} />;
  if (task.error instanceof ApiError && task.error.status === 404) {
    return (
      <Page title={t("task.notFound")}>
        <Empty title={t("task.notFound")} hint={t("task.notFoundHint")}>
          <ButtonLink look="primary" to="/training">
            {t("app.backToTasks")}
          </ButtonLink>
        </Empty>
      </Page>
    );
  }
  return task.isError ? <Failure error={task.error} retry={() => void task.refetch()} /> : <Loading />;
}

function TaskPage({ task }: { task: Task }) {
  const { t } = useTranslation();
  const id = task.taskId;
  useTaskCommands(task);
  const diagnosis = useQuery(diagnosisQuery(id, isOver(task))).data;
  const blamed = useMemo(() => blamedRanks(diagnosis, task.attempt), [diagnosis, task.attempt]);
  const { tab, rank, show } = useTaskAddress(task, blamed);
  const setRank = useCallback((rank: RankChoice) => show({ rank }), [show]);
  const feed = useTaskFeed(id, rank, isOver(task));
  const { data: metrics = NO_METRICS, isPending: loading } = useQuery(metricsQuery(id));
  const open = (tab: string, rank: number) => {
    show({ tab, rank });
    document.getElementById("details")?.scrollIntoView({ block: "nearest" });
  };
  const readRank = (rank: number) => open("logs", rank);
  const shells = mayMake(useQuery(meQuery).data, task.projectId) && !isOver(task);
  const wide = task.worldSize > MOST_BESIDE;
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
          <Machines task={task} metrics={metrics} rank={typeof rank === "number" ? rank : undefined} />
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
    { id: "files", label: t("task.files"), content: <Rendered task={task} /> },
    {
      id: "code",
      label: t("task.code"),
      content: (
        <Suspense fallback={<Loading />}>
          <CodeOfTask id={id} />
        </Suspense>
      ),
    },
    { id: "reuse", label: t("task.reuse"), content: <Reuse task={task} /> },
  ];
  return (
    <Page title={task.taskName} heading={<Heading task={task} feed={feed} />} actions={<Actions task={task} />}>
      <Why task={task} onRank={readRank}>
        <Reason task={task} />
      </Why>
      <div className="grid gap-4 lg:grid-cols-[minmax(0,1fr)_22rem]">
        <div className="min-w-0 space-y-4">
          <Progress task={task} metrics={metrics} />
          {wide && ranks}
          <Charts metrics={metrics} loading={loading} />
          <section id="details" className="scroll-mt-16 rounded-xl border bg-surface shadow-xs">
            <Tabs
              label={task.taskName}
              open={tabs.some(({ id }) => id === tab) ? tab : FIRST_TAB}
              onOpen={(tab) => show({ tab })}
              tabs={tabs}
            />
          </section>
        </div>
        <aside className="min-w-0 space-y-4">
          {task.status === "queued" && !task.paused && <Queue task={task} />}
          {task.elastic && <Elastic task={task} elastic={task.elastic} />}
          {!wide && ranks}
          <Timeline task={task} />
          <Facts task={task} />
          <Usage task={task} />
          <Suspense>
            <Outputs task={task} />
          </Suspense>
          <Drill task={task} />
          {task.ranks.length > 1 && <Speed id={id} points={metrics.length} />}
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
      <Note tone={statusTone(task.status)}>
        <p className="font-medium">{task.reason.message}</p>
        {task.reason.hint && (
          <p className="mt-0.5">
            {t("task.hint")}
            {task.reason.hint}
          </p>
        )}
      </Note>
    </div>
  );
}

function Heading({ task, feed }: { task: Task; feed: Feed }) {
  return (
    <span className="flex flex-wrap items-center gap-x-3 gap-y-1">
      {task.taskName}
      <span role="status" className="flex items-center gap-2 font-normal">
        <StatusBadge status={task.status} />
        <SharingBadges task={task} />
        <FeedSign feed={feed} />
      </span>
      <span className="basis-full font-mono text-xs font-normal text-muted sm:basis-auto">{task.taskId}</span>
    </span>
  );
}

/** Whether what is shown moves on by itself, and since when it does not. */
function FeedSign({ feed: { state, since } }: { feed: Feed }) {
  const { t } = useTranslation();
  if (state === "ended") return null;
  if (state === "stale") {
    return (
      <Badge tone="warn">
        <CloudOff aria-hidden className="size-3.5" />
        {t("task.stale", { time: clockTime(new Date(since).toISOString()) })}
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

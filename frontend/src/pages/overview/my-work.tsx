import { useQuery } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { overviewQuery } from "@/api/overview";
import { tasksQuery } from "@/api/tasks";
import type { Me, Status, TaskBrief } from "@/api/types";
import { formatInteger } from "@/lib/format";
import { useNow } from "@/lib/hooks";
import { StatusCell, StepCell } from "@/pages/tasks/columns";
import { useQueuePositions } from "@/pages/tasks/use-queue-positions";
import { ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { Attention } from "./attention";
import { Figure } from "./figures";
import { GpuBreakdown } from "./gpu-breakdown";
import type { OverviewUrlState } from "./use-overview-url-state";
import { RemainingQuota } from "./remaining-quota";

const RUNNING: Status[] = ["running", "starting", "stopping"];
const WAITING: Status[] = ["queued", "initializing"];
const POLL_MS = 5_000;

/** The user's tasks, GPUs, remaining quota, and what needs attention. */
export function MyWork({ me, address }: { me: Me; address: OverviewUrlState }) {
  const { t } = useTranslation();
  const owner = me.username;
  const running = useQuery({ ...tasksQuery({ owner, status: RUNNING, page: 1 }), refetchInterval: POLL_MS });
  const waiting = useQuery({ ...tasksQuery({ owner, status: WAITING, page: 1 }), refetchInterval: POLL_MS });
  const overview = useQuery(overviewQuery({}));
  const held = overview.data?.people.find(({ key }) => key === owner);
  const failed = [running, waiting, overview].find(({ isError }) => isError);
  const list = (status: Status[]) =>
    `/training?${status.map((each) => `status=${each}&`).join("")}owner=${encodeURIComponent(owner)}`;
  const number = (value: number | null | undefined) => (value == null ? "–" : formatInteger(value));
  return (
    <div className="space-y-4">
      {failed && <LoadError error={failed.error} retry={() => void failed.refetch()} />}
      <section aria-label={t("overview.now")} className="overflow-hidden rounded-xl border bg-surface shadow-xs">
        <dl className="grid grid-cols-2 gap-px bg-line *:bg-surface *:p-4 md:grid-cols-4">
          <Figure name={t("status.running")} value={number(running.data?.total)} to={list(RUNNING)} />
          <Figure name={t("overview.waiting")} value={number(waiting.data?.total)} to={list(WAITING)} />
          <Figure
            name={t("overview.mine.held")}
            value={number(overview.data && (held?.held ?? 0))}
            hint={held && held.idle > 0 && t("overview.mine.idle", { count: held.idle })}
            tone={held && held.idle > 0 ? "text-warn-ink" : undefined}
          />
          <Figure name={t("overview.mine.free")} value={number(overview.data?.gpus.free)} to="/environments" />
        </dl>
      </section>
      <div className="grid items-start gap-4 *:grid *:min-w-0 *:gap-4 xl:grid-cols-3">
        <div className="xl:col-span-2">
          <Tasks
            tasks={running.data && waiting.data && mergeTasks(running.data.items, waiting.data.items)}
            all={list([...RUNNING, ...WAITING])}
          />
          <Attention mine address={address} />
        </div>
        <div>
          <RemainingQuota me={me} />
          {overview.data && <GpuBreakdown overview={overview.data} by={["types", "zones"]} {...address.of("by")} />}
        </div>
      </div>
    </div>
  );
}

/** Merges two lists. A task that has just started may be in both. */
function mergeTasks(running: TaskBrief[], waiting: TaskBrief[]): TaskBrief[] {
  const known = new Set(running.map(({ taskId }) => taskId));
  return [...running, ...waiting.filter(({ taskId }) => !known.has(taskId))];
}

/** Running and waiting tasks, with a link to all. */
function Tasks({ tasks, all }: { tasks: TaskBrief[] | undefined; all: string }) {
  const { t } = useTranslation();
  const now = useNow(true);
  const places = useQueuePositions(tasks ?? []);
  return (
    <Card
      title={t("overview.mine.tasks")}
      aside={
        <Link to={all} className="text-sm text-accent-ink hover:underline">
          {t("app.tasks")}
        </Link>
      }
    >
      {!tasks && <Loading />}
      {tasks?.length === 0 && (
        <EmptyState title={t("overview.mine.none")}>
          <ButtonLink look="primary" to="/training/create">
            <Plus />
            {t("tasks.create")}
          </ButtonLink>
        </EmptyState>
      )}
      {tasks && tasks.length > 0 && (
        <ul aria-label={t("overview.mine.tasks")} className="divide-y border-y text-sm">
          {tasks.map((task) => (
            <li key={task.taskId} className="grid grid-cols-[1fr_auto] items-center gap-x-3 gap-y-1 py-2 sm:flex">
              <Link
                to={`/training/${task.taskId}`}
                className="min-w-0 flex-1 truncate font-medium hover:text-accent-ink hover:underline"
              >
                {task.taskName}
              </Link>
              <StatusCell t={t} shown={{ task, now, place: places.get(task.taskId) }} />
              <span className="shrink-0 text-xs text-muted tabular-nums sm:w-20 sm:text-right">
                {t("counted.gpus", { count: task.totalGpus })}
              </span>
              <span className="text-right text-xs tabular-nums sm:w-36">
                <StepCell task={task} now={now} />
              </span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

import { useQuery } from "@tanstack/react-query";
import { ExternalLink } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { isFinished } from "@/api/tasks";
import { syncTrackerRunsMutation, type TrackerRun, trackerRunsQuery } from "@/api/tracker-runs";
import type { Task } from "@/api/types";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { getSourceLabel } from "./sources";
import { useTaskAction } from "./use-task-action";

/** The runs that the script began at W&B, if any: their pages, and the action that sends those that were offline. */
export default function TrackerRuns({ task }: { task: Task }) {
  const { t } = useTranslation();
  const found = useQuery(trackerRunsQuery(task.taskId, !isFinished(task))).data;
  const sync = useTaskAction(task.taskId, syncTrackerRunsMutation(task.taskId), "trackerRuns.syncBegun");
  if (!found || found.items.length === 0) return null;
  return (
    <Card
      title={t("trackerRuns.title")}
      aside={
        found.canSync && (
          <Button size="sm" disabled={sync.isPending} onClick={() => sync.mutate()}>
            {t("trackerRuns.sync")}
          </Button>
        )
      }
    >
      {found.canSync && <p className="mb-2 text-sm text-muted">{t("trackerRuns.syncHint")}</p>}
      <ul className="space-y-2 text-sm">
        {found.items.map((run) => (
          <li key={`${run.project} ${run.runId} ${run.folder}`} className="min-w-0">
            <RunName run={run} />
            <p className="truncate text-xs text-muted">
              {[getSourceLabel(t, run.source), run.project, t(`trackerRuns.state.${run.state}`)]
                .filter(Boolean)
                .join(" · ")}
              {run.syncTaskId && run.state === "syncing" && (
                <>
                  {" · "}
                  <Link className="link" to={`/training/${run.syncTaskId}`}>
                    {run.syncTaskId}
                  </Link>
                </>
              )}
            </p>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function RunName({ run }: { run: TrackerRun }) {
  const name = run.name || run.runId;
  if (!/^https?:\/\//.test(run.url)) return <span className="block truncate font-medium">{name}</span>;
  return (
    <a className="link flex min-w-0 items-center gap-1 font-medium" href={run.url} target="_blank" rel="noreferrer">
      <span className="truncate">{name}</span>
      <ExternalLink className="size-3.5 shrink-0" />
    </a>
  );
}

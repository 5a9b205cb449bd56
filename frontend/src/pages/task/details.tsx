import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { checkpointsQuery, diagnosisQuery, eventsQuery, planQuery } from "@/api/tasks";
import type { CreateRequest, RenderedFile, Task } from "@/api/types";
import { formatBytes, formatTime, formatDateTime, formatNumber, formatInteger } from "@/lib/format";
import { escapeName } from "@/lib/escape-name";
import { Badge } from "@/ui/badge";
import { LoadError, Loading } from "@/ui/errors";
import { ButtonLink } from "@/ui/button";
import { CopyButton, FileTabs } from "@/ui/file-tabs";
import { buildRecipes } from "./request-recipes";

function Nothing({ text }: { text: string }) {
  return <p className="py-8 text-center text-sm text-muted">{text}</p>;
}

/** Newest first. */
export function Events({ id }: { id: string }) {
  const { t } = useTranslation();
  const events = useQuery(eventsQuery(id));
  if (events.isError) return <LoadError error={events.error} retry={() => void events.refetch()} />;
  if (events.isPending) return <Loading />;
  if (events.data.length === 0) return <Nothing text={t("task.noEvents")} />;
  return (
    <ol className="divide-y text-sm">
      {[...events.data].reverse().map((event) => (
        <li key={event.id} className="flex gap-3 py-2">
          <time dateTime={event.at} title={formatDateTime(event.at)} className="shrink-0 text-muted tabular-nums">
            {formatTime(event.at)}
          </time>
          <div className="min-w-0">
            <p className="break-words">{event.message}</p>
            {event.hint && <p className="break-words text-muted">{event.hint}</p>}
          </div>
        </li>
      ))}
    </ol>
  );
}

/** Returns the address of the create page with this task's request, starting from a checkpoint. */
export function buildResumeUrl(id: string, path: string): string {
  return `/training/create?${new URLSearchParams({ from: id, resumeFrom: path }).toString()}`;
}

/** Checkpoints that the script announced, or that were found where its ranks wrote them. */
export function Checkpoints({ id }: { id: string }) {
  const { t } = useTranslation();
  const checkpoints = useQuery(checkpointsQuery(id));
  const resumePoint = useQuery({ ...diagnosisQuery(id, true), enabled: false }).data?.resumePoint;
  if (checkpoints.isError) return <LoadError error={checkpoints.error} retry={() => void checkpoints.refetch()} />;
  if (checkpoints.isPending) return <Loading />;
  if (checkpoints.data.length === 0) return <Nothing text={t("task.noCheckpoints")} />;
  return (
    <div className="relative overflow-x-auto" tabIndex={0} role="group" aria-label={t("task.checkpoints")}>
      {resumePoint?.message && <p className="mb-2 text-sm text-muted">{resumePoint.message}</p>}
      <table className="w-full text-left text-sm">
        <thead className="text-muted">
          <tr className="*:px-2 *:py-1.5 *:font-medium *:whitespace-nowrap">
            <th>{t("task.step")}</th>
            <th>{t("logs.attempt")}</th>
            <th>{t("task.validationLoss")}</th>
            <th>{t("task.size")}</th>
            <th>{t("task.time")}</th>
            <th>{t("task.checkpointKind")}</th>
            <th aria-label={t("task.resumeHere")} />
            <th>{t("task.path")}</th>
          </tr>
        </thead>
        <tbody className="divide-y">
          {checkpoints.data.map((each) => (
            <tr key={each.path} className="*:px-2 *:py-1.5 *:whitespace-nowrap">
              <td className="tabular-nums">
                {formatInteger(each.step)}
                <span className="ml-2 inline-flex gap-1">
                  {each.newest && <Badge tone="info">{t("task.newestCheckpoint")}</Badge>}
                  {each.best && (
                    <Badge tone="ok" title={each.bestBy}>
                      {t("task.bestCheckpoint")}
                    </Badge>
                  )}
                  {!each.complete && <Badge tone="warn">{t("task.incompleteCheckpoint")}</Badge>}
                </span>
              </td>
              <td>{each.attempt}</td>
              <td className="tabular-nums">{each.valLoss == null ? "–" : formatNumber(each.valLoss)}</td>
              <td>{each.sizeBytes == null ? "–" : formatBytes(each.sizeBytes)}</td>
              <td>{formatDateTime(each.at)}</td>
              <td>
                {each.source === "runner"
                  ? t("task.foundCheckpoint", { layout: each.layout })
                  : t("task.announcedCheckpoint")}
                {each.note && <p className="text-muted">{each.note}</p>}
              </td>
              <td>
                {each.complete && (
                  <ButtonLink size="sm" to={buildResumeUrl(id, each.path)}>
                    {t("task.resumeHere")}
                  </ButtonLink>
                )}
              </td>
              <td>
                <span className="flex items-center gap-1 font-mono text-xs">
                  {escapeName(each.path)}
                  <CopyButton text={each.path} />
                </span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function RenderedPlan({ task }: { task: Task }) {
  const { t } = useTranslation();
  const plan = useQuery({ ...planQuery(task.taskId, task.attempt), enabled: task.attempt > 0 });
  if (task.attempt === 0) return <Nothing text={t("task.noFiles")} />;
  if (plan.isError) return <LoadError error={plan.error} retry={() => void plan.refetch()} />;
  if (plan.isPending) return <Loading />;
  const files: RenderedFile[] = [...plan.data.files, ...plan.data.artifacts];
  return files.length > 0 ? <FileTabs files={files} /> : <Nothing text={t("task.noFiles")} />;
}

export function Reuse({ task }: { task: Task }) {
  const { t } = useTranslation();
  return (
    <div className="space-y-3">
      <p className="text-sm text-muted">{t("task.reuseHint")}</p>
      <FileTabs files={buildRecipes(task.request as CreateRequest, location.origin)} />
    </div>
  );
}

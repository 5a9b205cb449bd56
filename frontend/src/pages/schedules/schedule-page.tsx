import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Pause, Pencil, Play, RotateCcw, Trash2 } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Link, useNavigate, useParams } from "react-router";
import { ApiError } from "@/api/errors";
import {
  changeSchedule,
  deleteSchedule,
  runSchedule,
  scheduleKeys,
  scheduleQuery,
  scheduleRunsQuery,
} from "@/api/schedules";
import { meQuery } from "@/api/session";
import { savedTemplateQuery } from "@/api/saved-templates";
import type { Schedule, ScheduleChange } from "@/api/types";
import { formatDateTime } from "@/lib/format";
import { Badge, Callout } from "@/ui/badge";
import { Button, ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { FileTabs } from "@/ui/file-tabs";
import { Page } from "@/ui/page";
import { DefinitionList } from "@/ui/table";
import { formatValue } from "@/ui/template-parameters/values";
import { toast } from "@/ui/toast";
import { formatYaml } from "../task/request-recipes";
import { History } from "./history";
import { NextMoments } from "./next-moments";
import { ScheduleNotFound } from "./not-found";
import { ScheduleStatus } from "./status";

export function Component() {
  const { id = "" } = useParams();
  const found = useQuery(scheduleQuery(id));
  if (found.data) return <SchedulePage schedule={found.data} />;
  if (found.error instanceof ApiError && found.error.status === 404) return <ScheduleNotFound />;
  return found.isError ? <LoadError error={found.error} retry={() => void found.refetch()} /> : <Loading />;
}

function SchedulePage({ schedule }: { schedule: Schedule }) {
  const { t } = useTranslation();
  return (
    <Page
      title={schedule.name}
      heading={
        <span className="flex flex-wrap items-center gap-3">
          {schedule.name}
          <ScheduleStatus schedule={schedule} />
        </span>
      }
      actions={schedule.mayChange && <Actions schedule={schedule} />}
    >
      <Notes schedule={schedule} />
      <div className="grid gap-4 lg:grid-cols-[minmax(0,1fr)_22rem]">
        <div className="min-w-0 space-y-4">
          <History schedule={schedule} />
          <Content schedule={schedule} />
        </div>
        <aside className="min-w-0 space-y-4">
          <Card title={t("schedule.when")}>
            <p className="font-mono text-sm">{schedule.cron}</p>
            <p className="mb-3 text-sm text-muted">{schedule.zone}</p>
            {schedule.enabled ? (
              <>
                <p className="mb-1 text-sm font-medium">{t("schedule.nextMoments")}</p>
                <NextMoments cron={schedule.cron} zone={schedule.zone} />
              </>
            ) : (
              <p className="text-sm text-muted">{t("schedule.pausedHint")}</p>
            )}
          </Card>
          <Card title={t("schedule.policies")}>
            <dl className="space-y-3 text-sm">
              <div>
                <dt className="text-muted">{t("schedule.overlap")}</dt>
                <dd>{t(`schedule.overlapOf.${schedule.overlap}`)}</dd>
              </div>
              <div>
                <dt className="text-muted">{t("schedule.missed")}</dt>
                <dd>{t(`schedule.missedOf.${schedule.missed}`)}</dd>
              </div>
            </dl>
          </Card>
          <Facts schedule={schedule} />
        </aside>
      </div>
    </Page>
  );
}

/** Buttons of those who may change the schedule. */
function Actions({ schedule }: { schedule: Schedule }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const navigate = useNavigate();
  const refresh = () => client.invalidateQueries({ queryKey: scheduleKeys.all });
  const onError = (error: Error) => toastError(t, error);
  const change = useMutation({
    mutationFn: (body: ScheduleChange) => changeSchedule(schedule.id, body),
    onSuccess: (changed) => {
      client.setQueryData(scheduleKeys.one(schedule.id), changed);
      toast.success(t(changed.enabled ? "schedule.resumed" : "schedule.paused"));
      void refresh();
    },
    onError,
  });
  const run = useMutation({
    mutationFn: () => runSchedule(schedule.id),
    onSuccess: () => {
      toast.success(t("schedule.runAsked"));
      void refresh();
    },
    onError,
  });
  const remove = useMutation({
    mutationFn: () => deleteSchedule(schedule.id),
    onSuccess: async () => {
      toast.success(t("schedule.deleted"));
      await navigate("/schedules");
      client.removeQueries({ queryKey: scheduleKeys.one(schedule.id) });
      await refresh();
    },
    onError,
  });
  const content: ScheduleChange = schedule.templateId
    ? { templateId: schedule.templateId, values: schedule.values }
    : { request: schedule.request as Record<string, unknown> };
  return (
    <>
      {schedule.enabled && (
        <Button look="primary" disabled={run.isPending} onClick={() => run.mutate()}>
          <Play />
          {t("schedule.runNow")}
        </Button>
      )}
      {schedule.enabled && (
        <Button disabled={change.isPending} onClick={() => change.mutate({ enabled: false })}>
          <Pause />
          {t("schedule.pause")}
        </Button>
      )}
      {!schedule.enabled && !schedule.stopped && (
        <Button look="primary" disabled={change.isPending} onClick={() => change.mutate({ enabled: true })}>
          <RotateCcw />
          {t("schedule.resume")}
        </Button>
      )}
      {schedule.stopped && (
        <ConfirmDialog
          title={t("schedule.takeOverTitle")}
          description={t("schedule.takeOverHint", { owner: schedule.owner })}
          action={t("schedule.takeOver")}
          onConfirm={() => change.mutate({ ...content, enabled: true })}
          trigger={
            <Button look="primary" disabled={change.isPending}>
              <RotateCcw />
              {t("schedule.takeOver")}
            </Button>
          }
        />
      )}
      <ButtonLink to={`/schedules/${schedule.id}/edit`}>
        <Pencil />
        {t("schedule.edit")}
      </ButtonLink>
      <ConfirmDialog
        danger
        title={t("schedule.deleteTitle", { name: schedule.name })}
        description={t("schedule.deleteHint")}
        action={t("schedule.delete")}
        onConfirm={() => remove.mutate()}
        trigger={
          <Button disabled={remove.isPending}>
            <Trash2 />
            {t("schedule.delete")}
          </Button>
        }
      />
    </>
  );
}

/** Why the schedule was stopped, why its newest moment waits, or why the last one failed. */
function Notes({ schedule }: { schedule: Schedule }) {
  const { t } = useTranslation();
  const runs = useQuery(scheduleRunsQuery(schedule.id, 1)).data?.items ?? [];
  const waiting = runs.find(({ outcome, reason }) => outcome === "pending" && reason);
  const decided = runs.find(({ outcome }) => outcome === "created" || outcome === "failed");
  const failed = decided?.outcome === "failed" ? decided : undefined;
  return (
    <div className="mb-4 space-y-3 empty:hidden">
      {schedule.stopped && (
        <Callout tone="bad">
          <p className="font-medium">{schedule.stopped.message}</p>
          <p className="mt-0.5">{schedule.stopped.hint}</p>
        </Callout>
      )}
      {waiting?.reason && (
        <Callout tone="info">
          {waiting.reason.message} {waiting.reason.hint}
        </Callout>
      )}
      {failed?.reason && (
        <Callout tone="bad">
          <p className="font-medium">{t("schedule.lastFailed", { time: formatDateTime(failed.moment) })}</p>
          <p className="mt-0.5">
            {failed.reason.message} {failed.reason.hint}
          </p>
        </Callout>
      )}
    </div>
  );
}

/** What its tasks run: a template with values, or a request of its own. */
function Content({ schedule }: { schedule: Schedule }) {
  const { t } = useTranslation();
  const template = useQuery(savedTemplateQuery(schedule.templateId ?? "")).data;
  if (!schedule.templateId)
    return (
      <Card title={t("schedule.runs")} aside={<Badge>{t("schedule.ownRequest")}</Badge>}>
        <FileTabs files={[{ name: "request.yaml", content: `${formatYaml(schedule.request)}\n` }]} />
      </Card>
    );
  const labels = new Map(template?.parameters.map(({ name, label }) => [name, label]));
  const left = template?.parameters.filter(({ name }) => !(name in schedule.values)) ?? [];
  const rows = [
    ...Object.entries(schedule.values).map(([name, value]) => ({ name, value, usual: false })),
    ...left.map(({ name, default: value }) => ({ name, value, usual: true })),
  ];
  return (
    <Card
      title={t("schedule.runs")}
      aside={
        <Link to={`/templates/${schedule.templateId}`} className="text-sm text-accent-ink hover:underline">
          {schedule.templateName}
        </Link>
      }
    >
      {rows.length === 0 ? (
        <p className="text-sm text-muted">{t("savedTemplate.noParameters")}</p>
      ) : (
        <DefinitionList
          facts={rows.map(({ name, value, usual }): [string, ReactNode] => [
            labels.get(name) ?? name,
            <span key={name} className="font-mono text-xs break-all">
              {formatValue(value) || "–"}
              {usual && <span className="ml-2 font-sans text-muted">{t("schedule.byDefault")}</span>}
            </span>,
          ])}
        />
      )}
    </Card>
  );
}

function Facts({ schedule }: { schedule: Schedule }) {
  const { t } = useTranslation();
  const projects = useQuery(meQuery).data?.projects;
  return (
    <Card title={t("schedule.about")}>
      <DefinitionList
        facts={[
          [t("schedule.project"), projects?.find(({ id }) => id === schedule.projectId)?.name ?? schedule.projectId],
          [t("schedule.owner"), schedule.owner],
          [t("schedule.created"), formatDateTime(schedule.createdAt)],
          [t("schedule.changed"), formatDateTime(schedule.updatedAt)],
        ]}
      />
      <p className="mt-3 text-xs text-muted">{t("schedule.rights")}</p>
    </Card>
  );
}

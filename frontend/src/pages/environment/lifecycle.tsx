import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { ExternalLink } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import {
  shutdownKernel,
  type EnvironmentRun,
  invalidateEnvironments,
  type ManagedEnvironment,
  type Kernel,
  lifecycleQuery,
  buildOpenUrl,
} from "@/api/managed-environments";
import type { Environment } from "@/api/types";
import { formatAge, formatTime, formatDateTime, formatGpuTime, formatMoney, formatShortTime } from "@/lib/format";
import { useNow } from "@/lib/hooks";
import { Badge, Callout } from "@/ui/badge";
import { Button, ButtonAnchor } from "@/ui/button";
import { Card } from "@/ui/card";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { KeepButton } from "@/ui/managed-environment/actions";
import { formatEnvironmentCost } from "@/ui/managed-environment/cost";
import { EnvironmentReason } from "@/ui/managed-environment/environment-reason";
import { DefinitionList } from "@/ui/table";
import { toast } from "@/ui/toast";

interface Props {
  environment: Environment;
  hosted: ManagedEnvironment;
}

/** How long before an automatic stop the page warns. */
const WARN_BEFORE_MS = 15 * 60_000;

/** Warnings: why the environment failed, and that it will stop soon. */
export function Warnings({ environment, hosted }: Props) {
  const { t } = useTranslation();
  const now = useNow();
  const { reason, state, stopsAt, allowedActions } = hosted;
  const isSoon = stopsAt !== null && Date.parse(stopsAt) - now < WARN_BEFORE_MS;
  return (
    <>
      {state === "failed" && reason && (
        <div className="mb-4">
          <Callout tone="bad" role="alert">
            <p className="font-medium">{reason.message}</p>
            {reason.hint && <p className="mt-0.5">{reason.hint}</p>}
          </Callout>
        </div>
      )}
      {isSoon && (
        <div className="mb-4">
          <Callout tone="warn" role="alert">
            <div className="flex flex-wrap items-center justify-between gap-2">
              {t("managedEnvironment.stopsSoon", { time: formatShortTime(stopsAt) })}
              {allowedActions.includes("keep") && <KeepButton id={environment.id} />}
            </div>
          </Callout>
        </div>
      )}
    </>
  );
}

export function Lifecycle({ hosted }: { hosted: ManagedEnvironment }) {
  const { t } = useTranslation();
  const now = useNow();
  const { state, since, idleStopMinutes, activeAt, keepUntil, connections, templateName, run, taskId } = hosted;
  const idle =
    keepUntil && Date.parse(keepUntil) > now
      ? t("managedEnvironment.kept", { time: formatShortTime(keepUntil) })
      : idleStopMinutes === null
        ? t("managedEnvironment.idleNever")
        : t("managedEnvironment.idleAfter", { count: idleStopMinutes });
  const afterwards = {
    delete: "managedEnvironment.afterwardsOf.delete",
    stop: "managedEnvironment.afterwardsOf.stop",
    keep: "managedEnvironment.afterwardsOf.keep",
  } as const;
  const then = afterwards[(hosted.afterwards ?? "") as keyof typeof afterwards] as
    (typeof afterwards)["keep"] | undefined;
  return (
    <Card title={t("managedEnvironment.life")}>
      <p role="status" className="text-sm font-medium">
        {t("managedEnvironment.since", { state: t(`environments.statusOf.${state}`), when: formatAge(since, now) })}
      </p>
      <EnvironmentReason hosted={hosted} className="mt-1" />
      <DefinitionList
        className="mt-3"
        facts={[
          [t("managedEnvironment.ofTemplate"), templateName ?? "–"],
          [t("managedEnvironment.run"), run || "–"],
          [t("managedEnvironment.cost"), formatEnvironmentCost(t, hosted)],
          [t("managedEnvironment.idleRule"), idle],
          [t("managedEnvironment.active"), activeAt ? formatAge(activeAt, now) : "–"],
          [t("managedEnvironment.connections"), connections],
          ...(taskId
            ? ([
                [
                  t("managedEnvironment.task"),
                  <Link
                    key="task"
                    to={`/training/${taskId}`}
                    className="font-mono text-xs text-accent-ink hover:underline"
                  >
                    {taskId}
                  </Link>,
                ],
              ] satisfies [string, React.ReactNode][])
            : []),
          ...(then ? ([[t("managedEnvironment.afterwards"), t(then)]] satisfies [string, string][]) : []),
        ]}
      />
    </Card>
  );
}

/** The proxy addresses that open in the browser. */
export function BrowserLinks({ environment, hosted }: Props) {
  const { t } = useTranslation();
  const opens = hosted.allowedActions.includes("open");
  return (
    <Card title={t("managedEnvironment.proxyAddresses")}>
      {opens && hosted.doors.length > 0 ? (
        <>
          <ul className="flex flex-wrap gap-2">
            {hosted.doors.map(({ name, port }) => (
              <li key={name}>
                <ButtonAnchor
                  size="sm"
                  href={buildOpenUrl(environment.id, name)}
                  target="_blank"
                  rel="noreferrer"
                  aria-label={t("managedEnvironment.openDoor", { name: port === null ? name : `${name}:${port}` })}
                >
                  <ExternalLink />
                  {name}
                  {port !== null && <span className="text-muted">:{port}</span>}
                </ButtonAnchor>
              </li>
            ))}
          </ul>
          <p className="mt-2 text-xs text-muted">{t("managedEnvironment.proxyAddressHint")}</p>
        </>
      ) : (
        <p className="text-sm text-muted">{t("managedEnvironment.noProxyAddresses")}</p>
      )}
    </Card>
  );
}

export function Kernels({ environment, hosted }: Props) {
  const { t } = useTranslation();
  return (
    <Card title={t("managedEnvironment.kernels")}>
      {hosted.kernels.length === 0 && <p className="text-sm text-muted">{t("managedEnvironment.noKernels")}</p>}
      <ul className="divide-y text-sm">
        {hosted.kernels.map((kernel) => (
          <KernelRow
            key={kernel.id}
            id={environment.id}
            kernel={kernel}
            ends={hosted.allowedActions.includes("open")}
          />
        ))}
      </ul>
    </Card>
  );
}

function KernelRow({
  id,
  kernel: { id: kernel, name, busy, since },
  ends,
}: {
  id: string;
  kernel: Kernel;
  ends: boolean;
}) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const end = useMutation({
    mutationFn: () => shutdownKernel(id, kernel),
    onSuccess: () => toast.success(t("managedEnvironment.endKernelDone")),
    onError: (error) => toastError(t, error),
    onSettled: () => invalidateEnvironments(client),
  });
  return (
    <li className="flex flex-wrap items-center gap-2 py-1.5">
      <span className="min-w-0 flex-1 break-words">{name}</span>
      <Badge tone={busy ? "accent" : "idle"}>{t(busy ? "managedEnvironment.busy" : "managedEnvironment.quiet")}</Badge>
      {since && (
        <span className="text-muted">{t("managedEnvironment.kernelSince", { time: formatShortTime(since) })}</span>
      )}
      {ends && (
        <ConfirmDialog
          danger
          title={t("managedEnvironment.endKernelTitle", { name })}
          description={t("managedEnvironment.endKernelHint")}
          action={t("managedEnvironment.endKernel")}
          onConfirm={() => end.mutate()}
          trigger={
            <Button size="sm" look="ghost" disabled={end.isPending}>
              {t("managedEnvironment.endKernel")}
            </Button>
          }
        />
      )}
    </li>
  );
}

/** Newest first. */
export function RunHistory({ id }: { id: string }) {
  const { t } = useTranslation();
  const life = useQuery(lifecycleQuery(id));
  if (life.isError) return <LoadError error={life.error} retry={() => void life.refetch()} />;
  if (life.isPending) return <Loading />;
  const { events, runs } = life.data;
  return (
    <div className="space-y-5">
      <section>
        <h3 className="mb-1 text-sm font-semibold">{t("managedEnvironment.events")}</h3>
        {events.length === 0 && <p className="text-sm text-muted">{t("managedEnvironment.noEvents")}</p>}
        <ol className="divide-y text-sm">
          {events.toReversed().map((event, index) => (
            <li key={`${event.at}/${event.code}/${index}`} className="flex gap-3 py-2">
              <time dateTime={event.at} title={formatDateTime(event.at)} className="shrink-0 text-muted tabular-nums">
                {formatTime(event.at)}
              </time>
              <p className="min-w-0 break-words">{event.message}</p>
            </li>
          ))}
        </ol>
      </section>
      <section>
        <h3 className="mb-1 text-sm font-semibold">{t("managedEnvironment.runs")}</h3>
        {runs.length === 0 ? (
          <p className="text-sm text-muted">{t("managedEnvironment.noRuns")}</p>
        ) : (
          <Runs runs={runs} />
        )}
      </section>
    </div>
  );
}

function Runs({ runs }: { runs: EnvironmentRun[] }) {
  const { t } = useTranslation();
  return (
    <div className="relative overflow-x-auto" tabIndex={0} role="group" aria-label={t("managedEnvironment.runs")}>
      <table className="w-full text-left text-sm">
        <thead className="text-muted">
          <tr className="*:px-2 *:py-1.5 *:font-medium *:whitespace-nowrap">
            <th>{t("managedEnvironment.runNumber")}</th>
            <th>{t("managedEnvironment.runFrom")}</th>
            <th>{t("managedEnvironment.runUntil")}</th>
            <th>{t("managedEnvironment.runOutcome")}</th>
            <th>{t("managedEnvironment.cost")}</th>
          </tr>
        </thead>
        <tbody className="divide-y">
          {runs.toReversed().map((run) => (
            <tr key={run.number} className="*:px-2 *:py-1.5">
              <td className="tabular-nums">{run.number}</td>
              <td className="whitespace-nowrap">{formatDateTime(run.runningAt ?? run.createdAt)}</td>
              <td className="whitespace-nowrap">
                {run.endedAt ? formatDateTime(run.endedAt) : t("managedEnvironment.runGoesOn")}
              </td>
              <td className="break-words">{formatOutcome(run)}</td>
              <td className="whitespace-nowrap tabular-nums">
                {run.amount === null
                  ? formatGpuTime(t, run.gpuHours)
                  : t("managedEnvironment.costValue", {
                      amount: formatMoney(run.amount, run.currency),
                      hours: formatGpuTime(t, run.gpuHours),
                    })}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const formatOutcome = ({ outcome }: EnvironmentRun) => outcome?.message ?? "–";

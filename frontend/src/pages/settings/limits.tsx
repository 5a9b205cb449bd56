import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Gauge } from "lucide-react";
import { useTranslation } from "react-i18next";
import { deleteUserLimits, invalidateLimits, limitsQuery, saveUserLimits, userLimitsQuery } from "@/api/limits";
import type { Limits as LimitsData, UserLimits } from "@/api/types";
import { formatDateTime, formatDuration, formatGpuTime, formatMeasurement, formatMoney } from "@/lib/format";
import { Badge } from "@/ui/badge";
import { Button } from "@/ui/button";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { Collapsible } from "@/ui/collapsible";
import { DefinitionList } from "@/ui/table";
import { LimitUsage } from "./limit-usage";
import { EditLimits } from "./limits-form";
import { parseNumberOrNull } from "./limits-fields";

/** The share of a budget at which it is shown as a warning. */
const WARNED = 0.8;

/** A project's limits and usage, and those of its members. */
export function Limits({ project, mayChange }: { project: string; mayChange: boolean }) {
  const { t } = useTranslation();
  const limits = useQuery(limitsQuery(project));
  return (
    <section className="mt-4 border-t pt-3">
      <div className="flex items-center justify-between gap-3">
        <h3 className="text-sm font-semibold">{t("limits.title")}</h3>
        {limits.data?.mayChange && <EditLimits limits={limits.data} />}
      </div>
      {limits.isError && <LoadError error={limits.error} retry={() => void limits.refetch()} />}
      {limits.isPending && <Loading />}
      {limits.data && <LimitTable limits={limits.data} />}
      {limits.data && (
        <Collapsible
          wanted={false}
          title={t("limits.members")}
          className="mt-3"
          summaryClassName="text-sm font-medium"
          whenOpen={() => <Members project={project} mayChange={mayChange} />}
        />
      )}
    </section>
  );
}

function LimitTable({ limits }: { limits: LimitsData }) {
  const { t } = useTranslation();
  const { use, currency, guaranteedGpus, budget } = limits;
  const borrowed = guaranteedGpus === null ? 0 : Math.max(0, use.sharedGpus - guaranteedGpus);
  const list = (texts: string[]) => texts.join(t("queue.comma")) || t("limits.all");
  const facts: [string, string][] = [
    [t("limits.weight"), String(limits.weight)],
    [t("limits.gpuTypes"), list(limits.gpuTypes)],
    [t("limits.zones"), list(limits.zones)],
    [
      t("limits.priorities"),
      limits.priorities.length > 0
        ? list(limits.priorities.map((each) => t(`queue.classOf.${each}`)))
        : t("limits.usualPriorities"),
    ],
    [
      t("limits.longestRun"),
      limits.longestRunSeconds === null ? t("limits.none") : formatDuration(t, limits.longestRunSeconds),
    ],
  ];
  return (
    <div className="mt-2 space-y-3 text-sm">
      <div className="grid gap-x-8 gap-y-3 sm:grid-cols-2">
        <LimitUsage name={t("limits.gpus")} used={use.gpus} most={limits.mostGpus} />
        <LimitUsage
          name={t("limits.guaranteed")}
          used={use.sharedGpus}
          most={guaranteedGpus}
          note={borrowed > 0 ? t("limits.borrowed", { count: borrowed }) : undefined}
        />
        <LimitUsage name={t("limits.tasks")} used={use.tasks} most={limits.mostTasks} />
        <LimitUsage name={t("limits.environments")} used={use.environments} most={limits.maxEnvironments} />
        <LimitUsage name={t("limits.environmentGpus")} used={use.environmentGpus} most={limits.maxEnvironmentGpus} />
        <LimitUsage
          name={t("limits.gpuHours")}
          used={use.gpuHours}
          most={limits.gpuHours}
          shown={(value) => formatGpuTime(t, value)}
        />
        <LimitUsage
          name={t("limits.budget")}
          used={use.cost}
          most={budget}
          mark={WARNED}
          shown={(value) => formatMoney(value, currency)}
          note={budget === null ? undefined : t(`limits.atBudgetOf.${limits.atBudget}`)}
        />
      </div>
      <DefinitionList facts={facts} />
      {limits.updatedAt && (
        <p className="text-xs text-muted">
          {t("limits.changed", { by: limits.updatedBy || "–", at: formatDateTime(limits.updatedAt) })}
        </p>
      )}
    </div>
  );
}

function Members({ project, mayChange }: { project: string; mayChange: boolean }) {
  const { t } = useTranslation();
  const users = useQuery(userLimitsQuery(project));
  if (users.isError) return <LoadError error={users.error} retry={() => void users.refetch()} />;
  if (users.isPending) return <Loading />;
  return (
    <div role="group" aria-label={t("limits.members")} tabIndex={0} className="mt-2 overflow-x-auto">
      <table className="w-full text-left text-sm">
        <thead className="text-muted">
          <tr className="*:py-1 *:pr-3 *:font-medium *:whitespace-nowrap">
            <th>{t("settings.username")}</th>
            <th>{t("limits.gpus")}</th>
            <th>{t("limits.tasks")}</th>
            <th>{t("limits.gpuHours")}</th>
            {mayChange && (
              <th>
                <span className="sr-only">{t("limits.change")}</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody className="divide-y">
          {users.data.map((user) => (
            <tr key={user.username} className="*:py-1.5 *:pr-3">
              <th scope="row" className="font-medium break-words">
                {user.username} {user.own && <Badge title={t("limits.ownHint")}>{t("limits.own")}</Badge>}
              </th>
              <Cell used={user.use.gpus} most={user.mostGpus} />
              <Cell used={user.use.tasks} most={user.mostTasks} />
              <Cell used={user.use.gpuHours} most={user.gpuHours} shown={(value) => formatGpuTime(t, value)} />
              {mayChange && (
                <td className="pr-0!">
                  <EditUser project={project} user={user} />
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface CellProps {
  used: number;
  most: number | null;
  shown?: (value: number) => string;
}

function Cell({ used, most, shown = formatMeasurement }: CellProps) {
  return (
    <td className="whitespace-nowrap tabular-nums">
      {shown(used)} <span className="text-muted">/ {most === null ? "–" : shown(most)}</span>
    </td>
  );
}

const USER_FIELDS = ["mostGpus", "mostTasks", "gpuHours", "maxEnvironments", "maxEnvironmentGpus"] as const;
const USER_LABEL = {
  mostGpus: "limits.gpus",
  mostTasks: "limits.tasks",
  gpuHours: "limits.gpuHours",
  maxEnvironments: "limits.maxEnvironments",
  maxEnvironmentGpus: "limits.maxEnvironmentGpus",
} as const;

function EditUser({ project, user }: { project: string; user: UserLimits }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const { username } = user;
  const save = async (texts: Record<string, string>) => {
    const body = Object.fromEntries(USER_FIELDS.map((field) => [field, parseNumberOrNull(texts[field])]));
    await saveUserLimits(project, username, body);
    await invalidateLimits(client, project);
  };
  const clear = useMutation({
    mutationFn: () => deleteUserLimits(project, username),
    onError: (error) => toastError(t, error),
    onSettled: () => invalidateLimits(client, project),
  });
  return (
    <span className="flex justify-end gap-1">
      {user.own && (
        <Button
          look="ghost"
          size="sm"
          aria-label={t("limits.clearOf", { name: username })}
          disabled={clear.isPending}
          onClick={() => clear.mutate()}
        >
          {t("limits.clear")}
        </Button>
      )}
      <FormDialog
        title={t("limits.changeOf", { name: username })}
        description={t("limits.userHint")}
        submit={t("app.save")}
        fields={USER_FIELDS}
        onSubmit={save}
        trigger={
          <Button size="sm" aria-label={t("limits.changeOf", { name: username })}>
            <Gauge />
            {t("limits.change")}
          </Button>
        }
      >
        {(problem) =>
          USER_FIELDS.map((field) => (
            <TextField
              key={field}
              name={field}
              label={t(USER_LABEL[field])}
              hint={t("limits.emptyIsNone")}
              inputMode="numeric"
              defaultValue={user[field] ?? ""}
              error={problem(field)}
            />
          ))
        }
      </FormDialog>
    </span>
  );
}

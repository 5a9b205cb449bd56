import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { Link, useNavigate, useParams } from "react-router";
import {
  cloneBest,
  deleteSweep,
  hasEnded,
  importanceQuery,
  pauseSweep,
  resumeSweep,
  stopSweep,
  sweepKeys,
  sweepQuery,
  trialsQuery,
} from "@/api/sweeps";
import type { Sweep, SweepTrial } from "@/api/types";
import { formatAge, formatNumber } from "@/lib/format";
import { useNow } from "@/lib/hooks";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { Field } from "@/ui/field";
import { FormDialog } from "@/ui/form-dialog";
import { MessageList } from "@/ui/message-list";
import { Page } from "@/ui/page";
import { DefinitionList, MEDIUM_COLUMN, ROW, Table } from "@/ui/table";
import { toast } from "@/ui/toast";
import { HistoryChart, ImportanceBars, ParallelCoordinates } from "./charts";
import type { Value } from "./figures";
import { SweepStatus, TrialStatus } from "./status";

export function Component() {
  const { id = "" } = useParams();
  const found = useQuery(sweepQuery(id));
  if (found.isError) return <LoadError error={found.error} retry={() => void found.refetch()} />;
  if (found.isPending) return <Loading />;
  return <SweepDetail sweep={found.data} />;
}

function SweepDetail({ sweep }: { sweep: Sweep }) {
  const { t } = useTranslation();
  const now = useNow();
  const trials = useQuery(trialsQuery(sweep.id, hasEnded(sweep))).data ?? [];
  const importance = useQuery(importanceQuery(sweep.id, sweep.trials.complete)).data;
  return (
    <Page
      title={sweep.name}
      heading={
        <span className="flex flex-wrap items-center gap-3">
          {sweep.name}
          <SweepStatus status={sweep.status} />
        </span>
      }
      actions={<Actions sweep={sweep} />}
    >
      {sweep.reason && (
        <p className="mb-4 text-sm text-muted">
          {sweep.reason.message} {sweep.reason.hint}
        </p>
      )}
      {sweep.warnings.length > 0 && (
        <div className="mb-4">
          <MessageList
            label={t("task.warnings")}
            notes={sweep.warnings.map(({ code, message, hint }) => ({ id: code, level: "warn", message, hint }))}
          />
        </div>
      )}
      <div className="grid gap-4 lg:grid-cols-3">
        <Card title={t("sweep.history")} className="lg:col-span-2">
          <HistoryChart trials={trials} goal={sweep.goal} />
        </Card>
        <Card title={t("sweep.bestTrial")}>
          <DefinitionList
            facts={[
              [t("sweep.objective"), `${sweep.metric} (${t(`sweep.goal.${sweep.goal}`)})`],
              [t("sweep.best"), sweep.bestValue === null ? "–" : formatNumber(sweep.bestValue)],
              ...Object.entries(sweep.bestTrial?.parameters ?? {}).map(([name, value]): [string, string] => [
                name,
                formatValue(value as Value),
              ]),
              [t("sweep.task"), <TaskOf key="task" trial={sweep.bestTrial} />],
              [t("sweep.method"), t(`sweep.methodOf.${sweep.method}`)],
              [t("sweep.trials"), t("sweep.counts", { ...sweep.trials })],
              [t("sweep.gpuHours"), formatNumber(sweep.gpuHours)],
              [t("sweep.owner"), sweep.owner],
              [t("sweep.created"), formatAge(sweep.createdAt, now)],
            ]}
          />
        </Card>
        <Card title={t("sweep.coordinates")} className="lg:col-span-2">
          <ParallelCoordinates trials={trials} sweep={sweep} />
        </Card>
        <Card title={t("sweep.importance")}>
          {importance && importance.items.length > 0 ? (
            <>
              <ImportanceBars items={importance.items} />
              <p className="mt-3 text-xs text-muted">{t("sweep.importanceHint", { count: importance.trials })}</p>
            </>
          ) : (
            <p className="text-sm text-muted">{t("sweep.importanceNone")}</p>
          )}
        </Card>
      </div>
      <div className="mt-4">
        <TrialTable trials={trials} best={sweep.best} />
      </div>
    </Page>
  );
}

function Actions({ sweep }: { sweep: Sweep }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const navigate = useNavigate();
  const refresh = () => void client.invalidateQueries({ queryKey: sweepKeys.all });
  const change = useMutation({
    mutationFn: (act: (id: string) => Promise<unknown>) => act(sweep.id),
    onSuccess: refresh,
    onError: toastError,
  });
  const remove = useMutation({
    mutationFn: () => deleteSweep(sweep.id),
    onSuccess: () => {
      refresh();
      void navigate("/sweeps");
    },
    onError: toastError,
  });
  const hasScript = Boolean(sweep.spec.request && (sweep.spec.request as { entrypoint?: unknown }).entrypoint);
  const may = (action: Sweep["allowedActions"][number]) => sweep.allowedActions.includes(action);
  return (
    <>
      {may("cloneBest") && (
        <FormDialog
          trigger={<Button look="primary">{t("sweep.clone")}</Button>}
          title={t("sweep.clone")}
          description={t("sweep.cloneHint")}
          submit={t("sweep.clone")}
          fields={["taskName", "hyperparameters", "args"]}
          onSubmit={async ({ taskName, steps, args, anew }) => {
            const { taskId } = await cloneBest(sweep.id, {
              ...(taskName && { taskName }),
              ...(steps && { hyperparameters: { totalSteps: Number(steps) } }),
              ...(args && {
                args: args
                  .split("\n")
                  .map((line) => line.trim())
                  .filter(Boolean),
              }),
              resume: !anew,
            });
            toast.success(t("sweep.cloned", { task: taskId }));
            void navigate(`/training/${taskId}`);
          }}
        >
          {(problem) => (
            <div className="space-y-4">
              <Field label={t("sweep.cloneName")} error={problem("taskName")}>
                {(control) => <input {...control} name="taskName" maxLength={100} className="control" />}
              </Field>
              {hasScript ? (
                <Field label={t("sweep.cloneArgs")} hint={t("sweep.cloneArgsHint")} error={problem("args")}>
                  {(control) => <textarea {...control} name="args" rows={3} className="control font-mono" />}
                </Field>
              ) : (
                <Field
                  label={t("sweep.cloneSteps")}
                  hint={t("sweep.cloneStepsHint")}
                  error={problem("hyperparameters")}
                >
                  {(control) => <input {...control} name="steps" type="number" min={1} className="control" />}
                </Field>
              )}
              <label className="flex items-center gap-2 text-sm">
                <input type="checkbox" name="anew" />
                {t("sweep.cloneAnew")}
              </label>
            </div>
          )}
        </FormDialog>
      )}
      {may("pause") && <Button onClick={() => change.mutate(pauseSweep)}>{t("sweep.pause")}</Button>}
      {may("resume") && <Button onClick={() => change.mutate(resumeSweep)}>{t("sweep.resume")}</Button>}
      {may("stop") && (
        <ConfirmDialog
          trigger={<Button>{t("sweep.stop")}</Button>}
          title={t("sweep.stopTitle")}
          description={t("sweep.stopHint")}
          action={t("sweep.stop")}
          danger
          onConfirm={() => change.mutate(stopSweep)}
        />
      )}
      {may("delete") && (
        <ConfirmDialog
          trigger={<Button>{t("sweep.delete")}</Button>}
          title={t("sweep.deleteTitle")}
          description={t("sweep.deleteHint")}
          action={t("sweep.delete")}
          danger
          onConfirm={() => remove.mutate()}
        />
      )}
    </>
  );
}

function TrialTable({ trials, best }: { trials: SweepTrial[]; best: number | null }) {
  const { t } = useTranslation();
  const names = [...new Set(trials.flatMap(({ parameters }) => Object.keys(parameters)))];
  return (
    <Table
      label={t("sweep.trials")}
      columns={[
        { label: t("sweep.number") },
        { label: t("sweep.state") },
        { label: t("sweep.value") },
        ...names.map((name) => ({ label: name, className: MEDIUM_COLUMN })),
        { label: t("sweep.task"), className: MEDIUM_COLUMN },
        { label: t("sweep.why"), className: MEDIUM_COLUMN },
      ]}
    >
      {trials.map((each) => (
        <tr key={each.number} className={ROW}>
          <td className={each.number === best ? "font-semibold tabular-nums" : "tabular-nums"}>{each.number}</td>
          <td>
            <TrialStatus status={each.status} />
          </td>
          <td className="tabular-nums">{each.value === null ? "–" : formatNumber(each.value)}</td>
          {names.map((name) => (
            <td key={name} className={`${MEDIUM_COLUMN} tabular-nums`}>
              {formatValue(each.parameters[name] as Value | undefined)}
            </td>
          ))}
          <td className={MEDIUM_COLUMN}>
            <TaskOf trial={each} />
          </td>
          <td className={`${MEDIUM_COLUMN} text-xs text-muted`}>{each.why?.message}</td>
        </tr>
      ))}
    </Table>
  );
}

function TaskOf({ trial }: { trial: SweepTrial | null }) {
  const { t } = useTranslation();
  if (!trial?.taskId) return <span className="text-muted">{t("sweep.noTask")}</span>;
  return (
    <Link to={`/training/${trial.taskId}`} className="font-mono text-xs text-accent-ink underline">
      {trial.taskId}
    </Link>
  );
}

function formatValue(value: Value | null | undefined): string {
  if (value === undefined || value === null) return "–";
  return typeof value === "number" ? formatNumber(value) : String(value);
}

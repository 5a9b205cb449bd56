import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { type RunOutcome, RUNS_PER_PAGE, scheduleRunsQuery } from "@/api/schedules";
import type { Schedule } from "@/api/types";
import { useTaskNames } from "@/lib/use-task-names";
import { LoadError, Loading } from "@/ui/errors";
import { FilterSelect } from "@/ui/filters";
import { Pager } from "@/ui/pager";
import { ROW, Table } from "@/ui/table";
import { TaskLink } from "@/ui/task-link";
import { formatMoment } from "./moments";
import { OutcomeBadge } from "./status";

const OUTCOMES: RunOutcome[] = ["pending", "created", "skipped", "failed"];

/** The newest moments of a schedule and what became of each. */
export function History({ schedule }: { schedule: Schedule }) {
  const { t } = useTranslation();
  const [page, setPage] = useState(1);
  const [outcome, setOutcome] = useState<RunOutcome>();
  const found = useQuery(scheduleRunsQuery(schedule.id, page, outcome));
  const names = useTaskNames(found.data?.items.map(({ taskId }) => taskId) ?? []);
  return (
    <section>
      <header className="mb-2 flex flex-wrap items-center justify-between gap-2">
        <h2 className="text-base font-semibold">{t("schedule.history")}</h2>
        <FilterSelect
          label={t("schedule.result")}
          any={t("schedule.anyResult")}
          options={OUTCOMES.map((each) => [each, t(`schedule.outcome.${each}`)])}
          value={outcome ?? ""}
          onChange={(value) => {
            setPage(1);
            setOutcome(value ? (value as RunOutcome) : undefined);
          }}
        />
      </header>
      {found.isError && <LoadError error={found.error} retry={() => void found.refetch()} />}
      {found.isPending && <Loading />}
      {found.data?.total === 0 && (
        <p className="rounded-xl border bg-surface p-6 text-center text-sm text-muted">
          {outcome ? t("schedule.noneOfResult") : t("schedule.noHistory")}{" "}
          {!outcome && schedule.enabled && schedule.mayChange && t("schedule.runHint")}
        </p>
      )}
      {found.data && found.data.total > 0 && (
        <>
          <Table
            label={t("schedule.history")}
            columns={[{ label: t("schedule.moment") }, { label: t("schedule.result") }, { label: t("schedule.task") }]}
          >
            {found.data.items.map((run) => (
              <tr key={run.moment} className={ROW}>
                <td className="whitespace-nowrap tabular-nums">{formatMoment(run.moment, schedule.zone)}</td>
                <td>
                  <OutcomeBadge outcome={run.outcome} />
                </td>
                <td className="w-full min-w-48">
                  {run.taskId && <TaskLink id={run.taskId} names={names} />}
                  {run.reason && (
                    <span className="text-muted">
                      {run.reason.message} {run.reason.hint}
                    </span>
                  )}
                  {!run.taskId && !run.reason && <span className="text-muted">{t("schedule.soon")}</span>}
                </td>
              </tr>
            ))}
          </Table>
          <Pager
            count={t("schedule.momentCount", { count: found.data.total })}
            pages={Math.ceil(found.data.total / RUNS_PER_PAGE)}
            page={page}
            onPage={setPage}
          />
        </>
      )}
    </section>
  );
}

import { useQuery } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { type ScheduleFilters, SCHEDULES_PER_PAGE, schedulesQuery } from "@/api/schedules";
import { canCreate, meQuery } from "@/api/session";
import type { Schedule } from "@/api/types";
import { formatAge, formatDateTime } from "@/lib/format";
import { useNow } from "@/lib/hooks";
import { useFilters } from "@/lib/use-filters";
import { ButtonLink } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { FilterSelect, SearchBox } from "@/ui/filters";
import { Page } from "@/ui/page";
import { Pager } from "@/ui/pager";
import { MEDIUM_COLUMN, ROW, Table, WIDE_COLUMN } from "@/ui/table";
import { formatMoment } from "./moments";
import { ScheduleStatus } from "./status";

export function Component() {
  const { t } = useTranslation();
  const me = useQuery(meQuery).data;
  const { filters, page, set, of } = useFilters(["search", "project", "ordering"] as const);
  const found = useQuery(schedulesQuery({ ...filters, page } as ScheduleFilters));
  const filtered = Boolean(filters.search ?? filters.project);
  return (
    <Page
      title={t("app.schedules")}
      actions={
        canCreate(me) && (
          <ButtonLink look="primary" to="/schedules/create">
            <Plus />
            {t("schedule.add")}
          </ButtonLink>
        )
      }
    >
      <p className="mb-4 max-w-3xl text-sm text-muted">{t("schedule.lead")}</p>
      <div className="mb-4 flex flex-wrap gap-2">
        <SearchBox label={t("schedule.search")} value={of("search").value} onSettled={(text) => set("search", text)} />
        {me && me.projects.length > 1 && (
          <FilterSelect
            label={t("schedule.project")}
            any={t("schedule.anyProject")}
            options={me.projects.map(({ id, name }) => [id, name])}
            {...of("project")}
          />
        )}
      </div>
      {found.isError && <LoadError error={found.error} retry={() => void found.refetch()} />}
      {found.isPending && <Loading />}
      {found.data?.total === 0 && (
        <section className="rounded-xl border bg-surface shadow-xs">
          {filtered ? (
            <EmptyState title={t("schedule.noneFound")} />
          ) : (
            <EmptyState title={t("schedule.empty")} hint={t("schedule.emptyHint")}>
              <ButtonLink to="/templates">{t("app.templates")}</ButtonLink>
            </EmptyState>
          )}
        </section>
      )}
      {found.data && found.data.total > 0 && (
        <>
          <ScheduleTable
            schedules={found.data.items}
            ordering={filters.ordering}
            onOrder={(ordering) => set("ordering", ordering)}
          />
          <Pager
            count={t("schedule.count", { count: found.data.total })}
            pages={Math.ceil(found.data.total / SCHEDULES_PER_PAGE)}
            page={page}
            onPage={(next) => set("page", String(next))}
          />
        </>
      )}
    </Page>
  );
}

interface TableProps {
  schedules: Schedule[];
  ordering: string | undefined;
  onOrder: (ordering: string) => void;
}

function ScheduleTable({ schedules, ordering, onOrder }: TableProps) {
  const { t } = useTranslation();
  const now = useNow();
  const projects = useQuery(meQuery).data?.projects;
  return (
    <Table
      label={t("app.schedules")}
      ordering={ordering}
      onOrder={onOrder}
      columns={[
        { label: t("schedule.name"), order: "name" },
        { label: t("schedule.status") },
        { label: t("schedule.when"), className: MEDIUM_COLUMN },
        { label: t("schedule.next"), className: MEDIUM_COLUMN, order: "nextAt" },
        { label: t("schedule.runs"), className: WIDE_COLUMN },
        { label: t("schedule.owner"), className: WIDE_COLUMN },
        { label: t("schedule.newestTask"), className: WIDE_COLUMN },
      ]}
    >
      {schedules.map((each) => (
        <tr key={each.id} className={ROW}>
          <td className="w-full max-w-0 md:w-1/4">
            <Link
              to={`/schedules/${each.id}`}
              className="font-medium break-words hover:text-accent-ink hover:underline"
            >
              {each.name}
            </Link>
            <div className="text-xs text-muted">
              {projects?.find(({ id }) => id === each.projectId)?.name ?? each.projectId}
            </div>
            {each.stopped && <div className="mt-0.5 line-clamp-2 text-xs text-bad-ink">{each.stopped.message}</div>}
          </td>
          <td>
            <ScheduleStatus schedule={each} />
          </td>
          <td className={MEDIUM_COLUMN}>
            <span className="font-mono text-xs whitespace-nowrap">{each.cron}</span>
            <div className="text-xs text-muted">{each.zone}</div>
          </td>
          <td className={`${MEDIUM_COLUMN} whitespace-nowrap`}>
            {each.nextAt ? formatMoment(each.nextAt, each.zone) : "–"}
          </td>
          <td className={WIDE_COLUMN}>
            {each.templateId ? (
              <Link to={`/templates/${each.templateId}`} className="text-accent-ink hover:underline">
                {each.templateName}
              </Link>
            ) : (
              <span className="text-muted">{t("schedule.ownRequest")}</span>
            )}
          </td>
          <td className={WIDE_COLUMN}>{each.owner}</td>
          <td className={`${WIDE_COLUMN} whitespace-nowrap`}>
            {each.lastTaskId && each.lastAt ? (
              <Link
                to={`/training/${each.lastTaskId}`}
                title={formatDateTime(each.lastAt)}
                className="text-accent-ink hover:underline"
              >
                {formatAge(each.lastAt, now)}
              </Link>
            ) : (
              <span className="text-muted">{t("schedule.noTask")}</span>
            )}
          </td>
        </tr>
      ))}
    </Table>
  );
}

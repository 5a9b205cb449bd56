import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { clustersQuery, queueQuery, WAITING_PER_PAGE } from "@/api/queue";
import { meQuery } from "@/api/session";
import { useFilters } from "@/lib/use-filters";
import { Button, ButtonLink } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { FilterSelect } from "@/ui/filters";
import { Page } from "@/ui/page";
import { Pager } from "@/ui/pager";
import { QueueSections } from "./queue-sections";
import { QueueTable } from "./table";

const FILTERS = ["project", "cluster"] as const;

export function Component() {
  const { t } = useTranslation();
  const { filters: texts, page, set, of, clear } = useFilters(FILTERS);
  const filters = { ...texts, page };
  const queue = useQuery(queueQuery(filters));
  const projects = useQuery(meQuery).data?.projects ?? [];
  const clusters = useQuery(clustersQuery).data ?? [];
  const filtered = Boolean(filters.project ?? filters.cluster);
  const pages = Math.ceil((queue.data?.total ?? 0) / WAITING_PER_PAGE);
  return (
    <Page title={t("queue.title")}>
      <QueueSections />
      <div className="mb-4 flex flex-wrap items-center gap-2">
        <FilterSelect
          label={t("queue.project")}
          any={t("queue.allProjects")}
          options={projects.map(({ id, name }) => [id, name])}
          {...of("project")}
        />
        <FilterSelect
          label={t("queue.cluster")}
          any={t("queue.allClusters")}
          options={clusters.map(({ id, name }) => [id, name])}
          {...of("cluster")}
        />
      </div>
      {queue.isError && <LoadError error={queue.error} retry={() => void queue.refetch()} />}
      {queue.isPending && <Loading />}
      {queue.data?.total === 0 && (
        <section className="rounded-xl border bg-surface shadow-xs">
          {filtered ? (
            <EmptyState title={t("queue.nothingMatches")}>
              <Button onClick={clear}>{t("tasks.clearFilters")}</Button>
            </EmptyState>
          ) : (
            <EmptyState title={t("queue.empty")} hint={t("queue.emptyHint")}>
              <ButtonLink to="/queue/timeline">{t("queue.seeTimeline")}</ButtonLink>
            </EmptyState>
          )}
        </section>
      )}
      {queue.data && queue.data.total > 0 && (
        <>
          <QueueTable waiters={queue.data.items} filters={filters} last={filters.page >= pages} />
          <Pager
            count={t("queue.count", { count: queue.data.total })}
            pages={pages}
            page={filters.page}
            onPage={(next) => set("page", String(next))}
          />
        </>
      )}
    </Page>
  );
}

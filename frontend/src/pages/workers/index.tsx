import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { groupsQuery, WORKERS_PER_PAGE, workersQuery } from "@/api/workers";
import type { Worker, WorkerGroup, WorkerOrdering } from "@/api/types";
import { useTableSettings } from "@/lib/use-table-settings";
import { useFilters } from "@/lib/use-filters";
import { useSelection } from "@/lib/use-selection";
import { Button } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { FilterSelect, SearchBox } from "@/ui/filters";
import { TableSettings } from "@/ui/table-settings";
import { Page } from "@/ui/page";
import { Pager } from "@/ui/pager";
import { WORKER_STATUSES } from "@/ui/worker-badge";
import { AddWorkers } from "./add-workers";
import { MoveWorkers } from "./move-workers";
import { useWritableProjects } from "./project-field";
import { WorkerSections } from "./worker-sections";
import { WorkerTable } from "./table";

const FILTERS = ["search", "group", "node", "status"] as const;
/** The API's filter for workers without a group. */
const NO_GROUP = "none";
const NOBODY: Worker[] = [];
const ORDERS = ["id", "group", "lastHeartbeatAt"];
const NO_GROUPS: WorkerGroup[] = [];

export function Component() {
  const { t } = useTranslation();
  const { filters, page, set, of, clear } = useFilters(FILTERS);
  const { ordering, onOrder } = useTableSettings(ORDERS);
  const found = useQuery(workersQuery({ ...filters, page, ...(ordering && { ordering: ordering as WorkerOrdering }) }));
  const groups = useQuery(groupsQuery).data ?? NO_GROUPS;
  const mayAdd = useWritableProjects().length > 0;
  const workers = found.data?.items ?? NOBODY;
  const movable = workers.filter(({ allowedActions }) => allowedActions.includes("move"));
  const ticks = useSelection(movable.map(({ id }) => id));
  const nodes = [...new Set([...(filters.node ? [filters.node] : []), ...workers.map(({ node }) => node)])];
  const filtered = Object.keys(filters).length > 0;
  return (
    <Page title={t("workers.title")} actions={mayAdd && <AddWorkers />}>
      <WorkerSections />
      <div className="mb-4 flex flex-wrap items-center gap-2">
        <SearchBox label={t("workers.search")} value={filters.search ?? ""} onSettled={(text) => set("search", text)} />
        <FilterSelect
          label={t("workers.group")}
          any={t("workers.allGroups")}
          options={[[NO_GROUP, t("workers.noGroup")], ...groups.map(({ id, name }) => [id, name] as [string, string])]}
          {...of("group")}
        />
        <FilterSelect
          label={t("workers.node")}
          any={t("workers.allNodes")}
          options={nodes.sort().map((node) => [node, node])}
          {...of("node")}
        />
        <FilterSelect
          label={t("workers.status")}
          any={t("tasks.allStatuses")}
          options={WORKER_STATUSES.map((each) => [each, t(`workers.statusOf.${each}`)])}
          {...of("status")}
        />
        <div className="ml-auto">
          <TableSettings section="workers" />
        </div>
        {movable.length > 0 && <MoveWorkers ticks={ticks} groups={groups} />}
      </div>
      {found.isError && <LoadError error={found.error} retry={() => void found.refetch()} />}
      {found.isPending && <Loading />}
      {found.data?.total === 0 && (
        <section className="rounded-xl border bg-surface shadow-xs">
          {filtered ? (
            <EmptyState title={t("workers.nothingMatches")}>
              <Button onClick={clear}>{t("tasks.clearFilters")}</Button>
            </EmptyState>
          ) : (
            <EmptyState title={t("workers.empty")} hint={mayAdd ? t("workers.emptyHint") : undefined}>
              {mayAdd && <AddWorkers />}
            </EmptyState>
          )}
        </section>
      )}
      {found.data && found.data.total > 0 && (
        <>
          <WorkerTable
            workers={workers}
            ticks={ticks}
            ordering={ordering}
            onOrder={onOrder}
            seenAt={found.dataUpdatedAt}
            onNode={(node) => set("node", node)}
          />
          <Pager
            count={t("workers.count", { count: found.data.total })}
            pages={Math.ceil(found.data.total / WORKERS_PER_PAGE)}
            page={page}
            onPage={(next) => set("page", String(next))}
          />
        </>
      )}
    </Page>
  );
}

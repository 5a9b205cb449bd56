import { useQuery } from "@tanstack/react-query";
import { LayoutTemplate, SquareTerminal } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { environmentPageQuery, ENVIRONMENTS_PER_PAGE } from "@/api/environments";
import { zonesQuery } from "@/api/inventory";
import { canCreate, meQuery } from "@/api/session";
import type { Environment, EnvironmentOrdering } from "@/api/types";
import { useTableSettings } from "@/lib/use-table-settings";
import { useFilters } from "@/lib/use-filters";
import { formatDuration, formatInteger } from "@/lib/format";
import { useTaskNames } from "@/lib/use-task-names";
import { Button, ButtonLink } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { ENVIRONMENT_STATUSES, EnvironmentBadges } from "@/ui/environment-badges";
import { LoadError, Loading } from "@/ui/errors";
import { FilterSelect, SearchBox } from "@/ui/filters";
import { GpuSummary } from "@/ui/gpu-summary";
import { EnvironmentActions } from "@/ui/managed-environment/actions";
import { formatEnvironmentCost } from "@/ui/managed-environment/cost";
import { EnvironmentReason } from "@/ui/managed-environment/environment-reason";
import { TableSettings } from "@/ui/table-settings";
import { TaskLink } from "@/ui/task-link";
import { Page } from "@/ui/page";
import { Pager } from "@/ui/pager";
import { MEDIUM_COLUMN, ROW, Table, WIDE_COLUMN } from "@/ui/table";
import { CreateEnvironment } from "./create-environment";

const FILTERS = ["zone", "status", "kind", "search"] as const;
const KINDS = ["jupyter", "vscode", "custom"] as const;

export function Component() {
  const { t } = useTranslation();
  const { filters, page, set, of, clear } = useFilters(FILTERS);
  const { ordering, onOrder, hidden, onHide } = useTableSettings(ORDERS);
  const found = useQuery(
    environmentPageQuery({ ...filters, page, ...(ordering && { ordering: ordering as EnvironmentOrdering }) }),
  );
  const columns = useColumns(found.data?.items ?? NONE);
  const zones = useQuery(zonesQuery).data ?? [];
  const makes = canCreate(useQuery(meQuery).data);
  const nothing = Object.keys(filters).length === 0;
  return (
    <Page
      title={t("environments.title")}
      actions={
        <>
          <ButtonLink to="/environment-templates">
            <LayoutTemplate />
            {t("managedEnvironment.toTemplates")}
          </ButtonLink>
          {makes && <CreateEnvironment />}
        </>
      }
    >
      <div className="mb-4 flex flex-wrap items-center gap-2">
        <SearchBox
          label={t("environments.search")}
          value={filters.search ?? ""}
          onSettled={(text) => set("search", text)}
        />
        <FilterSelect
          label={t("environments.zone")}
          any={t("tasks.allZones")}
          options={zones.map(({ id, name }) => [id, name])}
          {...of("zone")}
        />
        <FilterSelect
          label={t("environments.status")}
          any={t("tasks.allStatuses")}
          options={ENVIRONMENT_STATUSES.map((each) => [each, t(`environments.statusOf.${each}`)])}
          {...of("status")}
        />
        <FilterSelect
          label={t("environments.kind")}
          any={t("environments.allKinds")}
          options={KINDS.map((each) => [each, t(`environments.kindOf.${each}`)])}
          {...of("kind")}
        />
        <div className="ml-auto flex items-center gap-2">
          <TableSettings section="environments" columns={columns} hidden={hidden} onHide={onHide} />
        </div>
      </div>
      {found.isError && <LoadError error={found.error} retry={() => void found.refetch()} />}
      {found.isPending && <Loading />}
      {found.data?.total === 0 && (
        <EmptyState
          title={t(nothing ? "managedEnvironment.nothingYet" : "environments.nothingMatches")}
          {...(nothing && makes && { hint: t("managedEnvironment.nothingYetHint") })}
        >
          {!nothing && <Button onClick={clear}>{t("tasks.clearFilters")}</Button>}
        </EmptyState>
      )}
      {found.data && found.data.total > 0 && (
        <>
          <EnvironmentTable
            environments={found.data.items}
            columns={columns.filter(({ id }) => !hidden.includes(id))}
            ordering={ordering}
            onOrder={onOrder}
          />
          <Pager
            count={t("environments.count", { count: found.data.total })}
            pages={Math.ceil(found.data.total / ENVIRONMENTS_PER_PAGE)}
            page={page}
            onPage={(next) => set("page", String(next))}
          />
        </>
      )}
    </Page>
  );
}

const NONE: Environment[] = [];

interface EnvironmentColumn {
  id: string;
  label: string;
  order?: string;
  className: string;
  cell: (environment: Environment) => ReactNode;
}

const ORDERS = ["name", "status", "zone", "gpuType", "cpuCores", "uptime"];

/** Returns the columns that can be hidden. */
function useColumns(environments: Environment[]): EnvironmentColumn[] {
  const { t } = useTranslation();
  const names = useTaskNames(environments.map(({ heldBy }) => heldBy));
  return [
    {
      id: "zone",
      label: t("environments.zone"),
      order: "zone",
      className: `${MEDIUM_COLUMN} whitespace-nowrap`,
      cell: ({ zone }) => zone.name,
    },
    {
      id: "gpus",
      label: "GPU",
      order: "gpuType",
      className: MEDIUM_COLUMN,
      cell: ({ gpuType, gpuCount, emulated }) => <GpuSummary type={gpuType} count={gpuCount} emulated={emulated} />,
    },
    {
      id: "cpus",
      label: t("environments.cpuAndMemory"),
      order: "-cpuCores",
      className: `${WIDE_COLUMN} whitespace-nowrap`,
      cell: ({ cpuCores, memoryGb }) =>
        t("environments.cpuAndMemoryValue", { count: cpuCores, memory: formatInteger(memoryGb) }),
    },
    { id: "stack", label: t("environments.stack"), className: WIDE_COLUMN, cell: ({ stack }) => stack },
    {
      id: "uptime",
      label: t("environments.uptime"),
      order: "uptime",
      className: `${WIDE_COLUMN} whitespace-nowrap tabular-nums`,
      cell: ({ uptimeSeconds }) => (uptimeSeconds == null ? "–" : formatDuration(t, uptimeSeconds)),
    },
    {
      id: "usedBy",
      label: t("environments.usedBy"),
      className: MEDIUM_COLUMN,
      cell: ({ heldBy }) =>
        heldBy ? <TaskLink id={heldBy} names={names} /> : <span className="text-muted">{t("environments.free")}</span>,
    },
    {
      id: "cost",
      label: t("managedEnvironment.cost"),
      className: `${WIDE_COLUMN} whitespace-nowrap tabular-nums`,
      cell: (environment) => {
        const hosted = environment.hosted;
        return hosted ? formatEnvironmentCost(t, hosted) : "–";
      },
    },
  ];
}

interface EnvironmentTableProps {
  environments: Environment[];
  columns: EnvironmentColumn[];
  ordering: string | undefined;
  onOrder: (ordering: string) => void;
}

function EnvironmentTable({ environments, columns, ordering, onOrder }: EnvironmentTableProps) {
  const { t } = useTranslation();
  return (
    <Table
      label={t("environments.title")}
      ordering={ordering}
      onOrder={onOrder}
      columns={[
        { label: t("environments.name"), order: "name" },
        { label: t("environments.status"), order: "status" },
        ...columns,
        { label: <span className="sr-only">{t("managedEnvironment.more")}</span> },
      ]}
    >
      {environments.map((each) => (
        <tr key={each.id} className={ROW}>
          <td className="in-data-dense:whitespace-nowrap">
            <Link
              to={`/environments/${each.id}`}
              className="font-medium break-words hover:text-accent-ink hover:underline"
            >
              {each.name}
            </Link>
            <div className="font-mono text-xs text-muted in-data-dense:ml-2 in-data-dense:inline">{each.id}</div>
            <div className="mt-1 text-xs text-muted md:hidden">
              {each.zone.name} · <GpuSummary type={each.gpuType} count={each.gpuCount} emulated={each.emulated} />
            </div>
          </td>
          <td>
            <EnvironmentBadges environment={each} />
            <LifecycleCell environment={each} />
          </td>
          {columns.map(({ id, className, cell }) => (
            <td key={id} className={className}>
              {cell(each)}
            </td>
          ))}
          <td className="max-md:hidden">
            <ListAction environment={each} />
          </td>
        </tr>
      ))}
    </Table>
  );
}

function LifecycleCell({ environment }: { environment: Environment }) {
  const hosted = environment.hosted;
  return (
    hosted && (
      <>
        <EnvironmentReason hosted={hosted} className="mt-1 max-w-72" />
        <span className="mt-2 block md:hidden">
          <ListAction environment={environment} />
        </span>
      </>
    )
  );
}

/** The next action for an environment: open or start it. */
function ListAction({ environment }: { environment: Environment }) {
  const { t } = useTranslation();
  const hosted = environment.hosted;
  if (!hosted) return null;
  return (
    <span className="flex justify-end gap-1 max-md:justify-start">
      <EnvironmentActions environment={environment} hosted={hosted} brief />
      {hosted.allowedActions.includes("open") && (
        <ButtonLink
          size="sm"
          look="ghost"
          to={`/environments/${environment.id}?tab=terminal`}
          aria-label={`${t("managedEnvironment.terminal")} ${environment.name}`}
          title={t("managedEnvironment.terminal")}
        >
          <SquareTerminal />
        </ButtonLink>
      )}
    </span>
  );
}

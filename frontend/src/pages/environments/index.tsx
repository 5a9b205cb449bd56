import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { environmentPageQuery, ENVIRONMENTS_PER_PAGE } from "@/api/environments";
import { zonesQuery } from "@/api/inventory";
import type { Environment } from "@/api/types";
import { useFilters } from "@/lib/use-filters";
import { duration, integer } from "@/lib/format";
import { Button } from "@/ui/button";
import { Empty } from "@/ui/empty";
import { EnvironmentBadges } from "@/ui/environment";
import { Failure, Loading } from "@/ui/failure";
import { FilterSelect, SearchBox } from "@/ui/filters";
import { Gpus } from "@/ui/gpus";
import { Page } from "@/ui/page";
import { Pager } from "@/ui/pager";
import { MEDIUM, ROW, Table, WIDE } from "@/ui/table";

const FILTERS = ["zone", "status", "kind", "search"] as const;
const STATUSES = ["running", "stopped", "unhealthy"] as const;
const KINDS = ["jupyter", "vscode", "custom"] as const;

export function Component() {
  const { t } = useTranslation();
  const { filters, page, set, of, clear: clearAll } = useFilters(FILTERS);
  const [cleared, setCleared] = useState(0);
  const found = useQuery(environmentPageQuery({ ...filters, page }));
  const zones = useQuery(zonesQuery).data ?? [];
  const clear = () => {
    clearAll();
    setCleared(cleared + 1);
  };
  return (
    <Page title={t("environments.title")}>
      <div className="mb-4 flex flex-wrap items-center gap-2">
        <SearchBox
          key={cleared}
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
          options={STATUSES.map((each) => [each, t(`environments.statusOf.${each}`)])}
          {...of("status")}
        />
        <FilterSelect
          label={t("environments.kind")}
          any={t("environments.allKinds")}
          options={KINDS.map((each) => [each, t(`environments.kindOf.${each}`)])}
          {...of("kind")}
        />
      </div>
      {found.isError && <Failure error={found.error} retry={() => void found.refetch()} />}
      {found.isPending && <Loading />}
      {found.data?.items.length === 0 && (
        <Empty title={t("environments.nothingMatches")}>
          {Object.keys(filters).length > 0 && <Button onClick={clear}>{t("tasks.clearFilters")}</Button>}
        </Empty>
      )}
      {found.data && found.data.items.length > 0 && (
        <>
          <EnvironmentTable environments={found.data.items} />
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

function EnvironmentTable({ environments }: { environments: Environment[] }) {
  const { t } = useTranslation();
  return (
    <Table
      label={t("environments.title")}
      columns={[
        { label: t("environments.name") },
        { label: t("environments.status") },
        { label: t("environments.zone"), className: MEDIUM },
        { label: "GPU", className: MEDIUM },
        { label: t("environments.cpuAndMemory"), className: WIDE },
        { label: t("environments.stack"), className: WIDE },
        { label: t("environments.uptime"), className: WIDE },
        { label: t("environments.usedBy"), className: MEDIUM },
      ]}
    >
      {environments.map((each) => (
        <tr key={each.id} className={ROW}>
          <td>
            <Link
              to={`/environments/${each.id}`}
              className="font-medium break-words hover:text-accent-ink hover:underline"
            >
              {each.name}
            </Link>
            <div className="font-mono text-xs text-muted">{each.id}</div>
            <div className="mt-1 text-xs text-muted md:hidden">
              {each.zone.name} · <Gpus type={each.gpuType} count={each.gpuCount} emulated={each.emulated} />
            </div>
          </td>
          <td>
            <EnvironmentBadges environment={each} />
          </td>
          <td className={`${MEDIUM} whitespace-nowrap`}>{each.zone.name}</td>
          <td className={MEDIUM}>
            <Gpus type={each.gpuType} count={each.gpuCount} emulated={each.emulated} />
          </td>
          <td className={`${WIDE} whitespace-nowrap`}>
            {t("environments.cpuAndMemoryValue", { cpus: integer(each.cpuCores), memory: integer(each.memoryGb) })}
          </td>
          <td className={WIDE}>{each.stack}</td>
          <td className={`${WIDE} whitespace-nowrap tabular-nums`}>
            {each.uptimeSeconds == null ? "–" : duration(t, each.uptimeSeconds)}
          </td>
          <td className={MEDIUM}>
            {each.heldBy ? (
              <Link to={`/training/${each.heldBy}`} className="font-mono text-xs text-accent-ink hover:underline">
                {each.heldBy}
              </Link>
            ) : (
              <span className="text-muted">{t("environments.free")}</span>
            )}
          </td>
        </tr>
      ))}
    </Table>
  );
}

import { useQuery } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import { zonesQuery } from "@/api/inventory";
import { overviewQuery } from "@/api/overview";
import { meQuery } from "@/api/session";
import { formatTime } from "@/lib/format";
import { ButtonLink } from "@/ui/button";
import { LoadError, Loading } from "@/ui/errors";
import { FilterSelect } from "@/ui/filters";
import { Page } from "@/ui/page";
import { Attention } from "./attention";
import { GettingStarted, isUnused } from "./getting-started";
import { CapacityEvents } from "./capacity-events";
import { SegmentedControl } from "./segmented-control";
import { Failures } from "./failures";
import { Figures } from "./figures";
import { Goodput } from "./goodput";
import { GpuBreakdown } from "./gpu-breakdown";
import { MyWork } from "./my-work";
import { type OverviewUrlState, useOverviewUrlState } from "./use-overview-url-state";
import { Utilisation } from "./utilisation";
import { QueueSummary } from "./queue-summary";

/** The overview. Administrators start with the whole platform, others with their own work; both can switch. */
export function Component() {
  const { t } = useTranslation();
  const address = useOverviewUrlState();
  const me = useQuery(meQuery).data;
  if (!me) return <Loading />;
  const usual = me.isAdministrator ? "all" : "mine";
  const view = address.filters.view === "all" || address.filters.view === "mine" ? address.filters.view : usual;
  return (
    <Page
      title={t("overview.title")}
      actions={
        <>
          <SegmentedControl
            label={t("overview.view")}
            options={[
              ["mine", t("overview.viewOf.mine")],
              ["all", t(me.isAdministrator ? "overview.viewOf.all" : "overview.viewOf.projects")],
            ]}
            chosen={view}
            onChange={(chosen) => address.set("view", chosen === usual ? "" : chosen)}
          />
          <ButtonLink to="/training/create">
            <Plus />
            {t("tasks.create")}
          </ButtonLink>
        </>
      }
    >
      {view === "mine" ? <MyWork me={me} address={address} /> : <PlatformOverview address={address} />}
    </Page>
  );
}

function PlatformOverview({ address }: { address: OverviewUrlState }) {
  const { t } = useTranslation();
  const { filters, of } = address;
  const { project, zone, gpuType } = filters;
  const request = { ...(project && { project }), ...(zone && { zone }), ...(gpuType && { gpuType }) };
  const { data, isError, isPending, error, refetch } = useQuery(overviewQuery(request));
  const projects = useQuery(meQuery).data?.projects ?? [];
  const zones = useQuery(zonesQuery).data ?? [];
  const types = [...new Set([...(gpuType ? [gpuType] : []), ...(data?.types.map(({ key }) => key) ?? [])])];
  return (
    <>
      <div className="mb-4 flex flex-wrap items-center gap-2">
        <FilterSelect
          label={t("queue.project")}
          any={t("queue.allProjects")}
          options={projects.map(({ id, name }) => [id, name])}
          {...of("project")}
        />
        <FilterSelect
          label={t("tasks.zone")}
          any={t("tasks.allZones")}
          options={zones.map(({ name }) => [name, name])}
          {...of("zone")}
        />
        <FilterSelect
          label={t("overview.type")}
          any={t("overview.allTypes")}
          options={types.filter(Boolean).map((name) => [name, name])}
          {...of("gpuType")}
        />
        {data && <span className="ml-auto text-sm text-muted tabular-nums">{formatTime(data.at)}</span>}
      </div>
      {isError && <LoadError error={error} retry={() => void refetch()} />}
      {isPending && <Loading />}
      {data && (
        <div className="space-y-4">
          {isUnused(data) ? <GettingStarted overview={data} /> : <Figures overview={data} />}
          <div className="grid gap-4 xl:grid-cols-3">
            <Attention address={address} className="xl:col-span-2" />
            <div className="grid content-start gap-4 md:grid-cols-2 xl:grid-cols-1">
              <Utilisation overview={data} {...of("span")} />
              <Goodput overview={data} />
            </div>
          </div>
          <div className="grid items-start gap-4 *:grid *:min-w-0 *:gap-4 lg:grid-cols-2">
            <div>
              <GpuBreakdown overview={data} {...of("by")} />
              <Failures overview={data} />
            </div>
            <div>
              <QueueSummary overview={data} />
              <CapacityEvents overview={data} />
            </div>
          </div>
        </div>
      )}
    </>
  );
}

import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { zonesQuery } from "@/api/inventory";
import { overviewQuery } from "@/api/overview";
import { meQuery } from "@/api/session";
import { clockTime } from "@/lib/format";
import { useFilters } from "@/lib/use-filters";
import { Failure, Loading } from "@/ui/failure";
import { FilterSelect } from "@/ui/filters";
import { Page } from "@/ui/page";
import { Attention } from "./attention";
import { Capacity } from "./capacity";
import { Failures } from "./failures";
import { Figures } from "./figures";
import { Goodput } from "./goodput";
import { Gpus } from "./gpus";
import { Utilisation } from "./utilisation";
import { Waiting } from "./waiting";

const FILTERS = ["project", "zone", "gpuType", "kind", "by", "span"] as const;

/** All of it at one look: the first page of whoever runs the platform; of others, their own projects' part. */
export function Component() {
  const { t } = useTranslation();
  const address = useFilters(FILTERS);
  const { filters, of } = address;
  const { project, zone, gpuType } = filters;
  const asked = { ...(project && { project }), ...(zone && { zone }), ...(gpuType && { gpuType }) };
  const { data, isError, isPending, error, refetch } = useQuery(overviewQuery(asked));
  const projects = useQuery(meQuery).data?.projects ?? [];
  const zones = useQuery(zonesQuery).data ?? [];
  const types = [...new Set([...(gpuType ? [gpuType] : []), ...(data?.types.map(({ key }) => key) ?? [])])];
  return (
    <Page
      title={t("overview.title")}
      actions={data && <span className="text-sm text-muted tabular-nums">{clockTime(data.at)}</span>}
    >
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
      </div>
      {isError && <Failure error={error} retry={() => void refetch()} />}
      {isPending && <Loading />}
      {data && (
        <div className="space-y-4">
          <Figures overview={data} />
          <div className="grid gap-4 xl:grid-cols-3">
            <Attention address={address} className="xl:col-span-2" />
            <div className="grid content-start gap-4 md:grid-cols-2 xl:grid-cols-1">
              <Utilisation overview={data} {...of("span")} />
              <Goodput overview={data} />
            </div>
          </div>
          <div className="grid items-start gap-4 *:grid *:min-w-0 *:gap-4 lg:grid-cols-2">
            <div>
              <Gpus overview={data} {...of("by")} />
              <Failures overview={data} />
            </div>
            <div>
              <Waiting overview={data} />
              <Capacity overview={data} />
            </div>
          </div>
        </div>
      )}
    </Page>
  );
}

import { useQuery } from "@tanstack/react-query";
import { ChartGantt, ChevronLeft, ChevronRight, Table2, ZoomIn, ZoomOut } from "lucide-react";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { meQuery } from "@/api/session";
import { timelineQuery } from "@/api/timeline";
import { useFilters } from "@/lib/use-filters";
import { Button } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { FilterSelect, SearchBox } from "@/ui/filters";
import { Page } from "@/ui/page";
import { QueueSections } from "@/pages/queue/queue-sections";
import { TimelineChart } from "./chart";
import { SpanList } from "./span-list";
import { Legend } from "./span";
import { DEFAULT_ZOOM_HOURS, computeWindow, listZones, ZOOM_HOURS } from "./window";

const FILTERS = ["project", "zone", "search", "view"] as const;
const TICK_MS = 30_000;

export function Component() {
  const { t } = useTranslation();
  const { filters, set, of } = useFilters(FILTERS);
  const [zoom, setZoom] = useState(DEFAULT_ZOOM_HOURS);
  const [shift, setShift] = useState(0);
  const now = useSlowClock();
  const window = computeWindow(now, zoom, shift);
  const request = { from: new Date(window.from).toISOString(), to: new Date(window.to).toISOString() };
  const timeline = useQuery(timelineQuery({ ...request, ...(filters.project && { project: filters.project }) }));
  const projects = useQuery(meQuery).data?.projects ?? [];
  const all = timeline.data?.environments ?? [];
  const zones = listZones(all);
  const search = filters.search?.toLowerCase() ?? "";
  const shown = all.filter(
    ({ id, name, zone }) =>
      (!filters.zone || zone === filters.zone) && (name.toLowerCase().includes(search) || id.includes(search)),
  );
  const home = () => {
    setShift(0);
    setZoom(DEFAULT_ZOOM_HOURS);
  };
  const asTable = filters.view === "table";
  return (
    <Page title={t("app.timeline")}>
      <QueueSections />
      <div className="mb-3 flex flex-wrap items-center gap-2">
        <SearchBox
          label={t("timeline.search")}
          value={filters.search ?? ""}
          onSettled={(text) => set("search", text)}
        />
        <FilterSelect
          label={t("queue.project")}
          any={t("queue.allProjects")}
          options={projects.map(({ id, name }) => [id, name])}
          {...of("project")}
        />
        <FilterSelect
          label={t("environments.zone")}
          any={t("tasks.allZones")}
          options={zones.map((zone) => [zone, zone])}
          {...of("zone")}
        />
        <div role="group" aria-label={t("timeline.range")} className="flex flex-wrap items-center gap-1 md:ml-auto">
          <Button size="icon" aria-label={t("timeline.earlier")} onClick={() => setShift(shift - 1)}>
            <ChevronLeft />
          </Button>
          <Button disabled={shift === 0 && zoom === DEFAULT_ZOOM_HOURS} onClick={home}>
            {t("timeline.now")}
          </Button>
          <Button size="icon" aria-label={t("timeline.later")} onClick={() => setShift(shift + 1)}>
            <ChevronRight />
          </Button>
          <Button size="icon" aria-label={t("timeline.in")} disabled={zoom === 0} onClick={() => setZoom(zoom - 1)}>
            <ZoomIn />
          </Button>
          <Button
            size="icon"
            aria-label={t("timeline.out")}
            disabled={zoom === ZOOM_HOURS.length - 1}
            onClick={() => setZoom(zoom + 1)}
          >
            <ZoomOut />
          </Button>
          <Button onClick={() => set("view", asTable ? "" : "table")}>
            {asTable ? <ChartGantt /> : <Table2 />}
            {t(asTable ? "timeline.asChart" : "timeline.asTable")}
          </Button>
        </div>
      </div>
      {timeline.isError && <LoadError error={timeline.error} retry={() => void timeline.refetch()} />}
      {timeline.isPending && <Loading />}
      {timeline.data && shown.length === 0 && (
        <section className="rounded-xl border bg-surface shadow-xs">
          <EmptyState title={t("environments.nothingMatches")} />
        </section>
      )}
      {shown.length > 0 &&
        (asTable ? (
          <SpanList environments={shown} window={window} />
        ) : (
          <div className="space-y-3">
            <Legend />
            <TimelineChart environments={shown} window={window} now={now} />
          </div>
        ))}
    </Page>
  );
}

/** Returns the current time in milliseconds, updated slowly: a minute is less than a pixel. */
function useSlowClock(): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  return now;
}

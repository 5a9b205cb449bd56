import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { machineTelemetryQuery } from "@/api/telemetry";
import { cx } from "@/lib/cx";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { ChartSelector } from "./chart-selector";
import { UseHistory } from "./use-history";
import { useChartUrlState, useVisiblePanels } from "./use-chart-url-state";
import { listMetrics, MACHINE_PANELS, PANEL_IDS } from "./metrics";
import { ChartPanels } from "./chart-panels";

const HOUR = 3600;
const RANGES = { hour: HOUR, day: 24 * HOUR, week: 7 * 24 * HOUR, month: 30 * 24 * HOUR, year: 365 * 24 * HOUR };
type RangeSelect = keyof typeof RANGES;
const NAMES = Object.keys(RANGES) as RangeSelect[];
const POINTS = 300;
const CHARTS = { environment: MACHINE_PANELS, worker: PANEL_IDS };

/** The telemetry of an environment or a worker, and the tasks that used it. */
export default function MachineHistory({ kind, id }: { kind: "environment" | "worker"; id: string }) {
  const { t } = useTranslation();
  const { text, change, stretch, zoom } = useChartUrlState();
  const charts = useVisiblePanels(CHARTS[kind]);
  const range = NAMES.find((name) => name === text("range")) ?? "hour";
  const wanted = { metric: listMetrics(charts.panels), stretch, points: POINTS };
  const reported = useQuery(machineTelemetryQuery(kind, id, wanted, RANGES[range]));
  return (
    <Card
      title={t("machines.title")}
      aside={
        <div className="flex flex-wrap items-center gap-1.5">
          {stretch && <Button onClick={() => zoom(undefined)}>{t("machines.all")}</Button>}
          <div role="group" aria-label={t("machines.range")} className="flex flex-wrap gap-1.5">
            {NAMES.map((each) => (
              <button
                key={each}
                type="button"
                aria-pressed={!stretch && range === each}
                onClick={() => change({ from: "", to: "", range: each === "hour" ? "" : each })}
                className={cx(
                  "rounded-full border px-2.5 py-0.5 text-xs",
                  !stretch && range === each
                    ? "border-accent-line/40 bg-accent-soft font-medium text-accent-ink"
                    : "text-muted hover:text-ink",
                )}
              >
                {t(`machines.ranges.${each}`)}
              </button>
            ))}
          </div>
          <ChartSelector ids={CHARTS[kind]} charts={charts} />
        </div>
      }
    >
      <div className="space-y-3">
        {reported.isError && <LoadError error={reported.error} retry={() => void reported.refetch()} />}
        {!reported.data && !reported.isError && <Loading tall />}
        {reported.data?.emulated && <Callout tone="warn">{t("machines.emulated")}</Callout>}
        {reported.data?.series.length === 0 && (
          <EmptyState
            title={t("machines.nothing")}
            hint={t(kind === "environment" ? "machines.nothingHere" : "machines.nothingOfWorker")}
          />
        )}
        {reported.data && (reported.data.series.length > 0 || reported.data.tasks.length > 0) && (
          <ChartPanels
            answer={reported.data}
            panels={reported.data.series.length > 0 ? charts.panels : []}
            onZoom={zoom}
            extra={(axis) => <UseHistory tasks={reported.data.tasks} axis={axis} />}
          />
        )}
      </div>
    </Card>
  );
}

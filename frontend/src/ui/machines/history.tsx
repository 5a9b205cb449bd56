import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { machineTelemetryQuery } from "@/api/telemetry";
import { cx } from "@/lib/cx";
import { Note } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { Empty } from "@/ui/empty";
import { Failure, Loading } from "@/ui/failure";
import { Chooser } from "./chooser";
import { Holders } from "./holders";
import { useLook, usePanels } from "./look";
import { metricsOf, OF_MACHINES, PANEL_IDS } from "./metrics";
import { Panels } from "./panels";

const HOUR = 3600;
const RANGES = { hour: HOUR, day: 24 * HOUR, week: 7 * 24 * HOUR, month: 30 * 24 * HOUR, year: 365 * 24 * HOUR };
type Range = keyof typeof RANGES;
const NAMES = Object.keys(RANGES) as Range[];
const POINTS = 300;
const CHARTS = { environment: OF_MACHINES, worker: PANEL_IDS };

/** What an environment or a worker did over its life, and who had it meanwhile. */
export default function History({ kind, id }: { kind: "environment" | "worker"; id: string }) {
  const { t } = useTranslation();
  const { text, change, stretch, zoom } = useLook();
  const charts = usePanels(CHARTS[kind]);
  const range = NAMES.find((name) => name === text("range")) ?? "hour";
  const wanted = { metric: metricsOf(charts.panels), stretch, points: POINTS };
  const told = useQuery(machineTelemetryQuery(kind, id, wanted, RANGES[range]));
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
          <Chooser ids={CHARTS[kind]} charts={charts} />
        </div>
      }
    >
      <div className="space-y-3">
        {told.isError && <Failure error={told.error} retry={() => void told.refetch()} />}
        {!told.data && !told.isError && <Loading tall />}
        {told.data?.emulated && <Note tone="warn">{t("machines.emulated")}</Note>}
        {told.data?.series.length === 0 && (
          <Empty
            title={t("machines.nothing")}
            hint={t(kind === "environment" ? "machines.nothingHere" : "machines.nothingOfWorker")}
          />
        )}
        {told.data && (told.data.series.length > 0 || told.data.tasks.length > 0) && (
          <Panels
            answer={told.data}
            panels={told.data.series.length > 0 ? charts.panels : []}
            onZoom={zoom}
            extra={(axis) => <Holders tasks={told.data.tasks} axis={axis} />}
          />
        )}
      </div>
    </Card>
  );
}

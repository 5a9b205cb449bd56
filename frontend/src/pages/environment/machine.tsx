import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { environmentTelemetryQuery, type Stretch } from "@/api/telemetry";
import type { Environment, Holding } from "@/api/types";
import { cx } from "@/lib/cx";
import { shortTime } from "@/lib/format";
import { Badge } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { Empty } from "@/ui/empty";
import { Failure, Loading } from "@/ui/failure";
import { metricsOf, PANEL_IDS } from "@/ui/machines/bands";
import { Panels } from "@/ui/machines/panels";

const HOUR = 3600;
const RANGES = { hour: HOUR, day: 24 * HOUR, week: 7 * 24 * HOUR, month: 30 * 24 * HOUR, year: 365 * 24 * HOUR };
type Range = keyof typeof RANGES;
const METRICS = metricsOf(PANEL_IDS);

/** What the environment did over its life, and who had it meanwhile. */
export default function Machine({ environment }: { environment: Environment }) {
  const { t } = useTranslation();
  const [range, setRange] = useState<Range>("hour");
  const [stretch, setStretch] = useState<Stretch>();
  const told = useQuery(environmentTelemetryQuery(environment.id, METRICS, RANGES[range], stretch, 300));
  const choose = (range: Range) => {
    setStretch(undefined);
    setRange(range);
  };
  return (
    <Card
      title={t("machines.title")}
      aside={
        <div role="group" aria-label={t("machines.range")} className="flex flex-wrap gap-1.5">
          {(Object.keys(RANGES) as Range[]).map((each) => (
            <button
              key={each}
              type="button"
              aria-pressed={!stretch && range === each}
              onClick={() => choose(each)}
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
          {stretch && <Button onClick={() => setStretch(undefined)}>{t("machines.all")}</Button>}
        </div>
      }
    >
      {told.isError && <Failure error={told.error} retry={() => void told.refetch()} />}
      {!told.data && !told.isError && <Loading />}
      {told.data && told.data.series.length === 0 && (
        <Empty title={t("machines.nothing")} hint={t("machines.nothingHere")} />
      )}
      {told.data && told.data.series.length > 0 && (
        <div className="space-y-3">
          {told.data.emulated && <Badge tone="warn">{t("machines.emulated")}</Badge>}
          <Panels answer={told.data} marks={[]} onZoom={setStretch} />
          <Strip from={told.data.from} to={told.data.to} tasks={told.data.tasks} />
        </div>
      )}
    </Card>
  );
}

/** Who had it, on the axis of the charts. */
function Strip({ from, to, tasks }: { from: string; to: string; tasks: Holding[] }) {
  const { t } = useTranslation();
  const [begins, ends] = [new Date(from).getTime(), new Date(to).getTime()];
  const place = (iso: string | null) => {
    const at = iso ? new Date(iso).getTime() : ends;
    return (100 * Math.min(Math.max(at - begins, 0), ends - begins)) / (ends - begins);
  };
  if (tasks.length === 0) return <p className="text-sm text-muted">{t("machines.nobody")}</p>;
  return (
    <div>
      <h3 className="mb-1.5 text-sm">{t("machines.tasks")}</h3>
      <ul className="relative h-7 rounded-md bg-sunken">
        {tasks.map((task) => {
          const left = place(task.from);
          const label = `${task.name || t("machines.others")} · ${shortTime(task.from)} – ${task.to ? shortTime(task.to) : t("machines.now")}`;
          const look = "block h-full truncate rounded px-1.5 text-xs leading-5";
          return (
            <li
              key={`${task.id ?? task.name} ${task.from}`}
              className="absolute inset-y-1 min-w-1"
              style={{ left: `${left}%`, width: `${Math.max(place(task.to) - left, 0)}%` }}
              title={label}
            >
              {task.id ? (
                <Link
                  to={`/training/${task.id}`}
                  aria-label={label}
                  className={cx(
                    look,
                    "bg-accent-soft text-accent-ink outline-1 outline-accent-line/40 hover:underline",
                  )}
                >
                  {task.name}
                </Link>
              ) : (
                <span className={cx(look, "bg-surface text-muted")}>{task.name || t("machines.others")}</span>
              )}
            </li>
          );
        })}
      </ul>
    </div>
  );
}

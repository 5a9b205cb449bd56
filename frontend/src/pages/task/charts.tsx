import type { TFunction } from "i18next";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import type { Metric } from "@/api/types";
import { cx } from "@/lib/cx";
import { formatNumber, formatInteger } from "@/lib/format";
import { Card } from "@/ui/card";
import { EmptyState } from "@/ui/empty-state";
import { Chart, type Line, type Mark } from "./chart";
import { listMetricNames, buildSeries, smoothPoints } from "./series";

/** Drawn in the loss's chart. */
const VALIDATION = "val_loss";
const DEFAULT_METRICS = ["loss", "tokens_per_s"];
/** Number of ranges without finite values that are marked, the newest. */
const MAX_MARKS = 10;

interface View {
  smoothing: number;
  log: boolean;
}

/** Charts of reported metrics. Several attempts form one line. */
export function Charts({ metrics, loading }: { metrics: Metric[]; loading: boolean }) {
  const { t } = useTranslation();
  const names = useMemo(() => listMetricNames(metrics).filter((name) => name !== VALIDATION), [metrics]);
  const [chosen, setChosen] = useState(DEFAULT_METRICS);
  const [view, setView] = useState<View>({ smoothing: 0, log: false });
  const shown = names.filter((name) => chosen.includes(name));
  const toggle = (name: string) =>
    setChosen(chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name]);
  return (
    <Card title={t("task.charts")} aside={names.length > 0 && <Controls view={view} onChange={setView} />}>
      {names.length === 0 ? (
        <div className={cx(loading && "min-h-84")}>{!loading && <EmptyState title={t("task.noMetrics")} />}</div>
      ) : (
        <>
          <div role="group" aria-label={t("task.chooseMetrics")} className="mb-3 flex flex-wrap gap-1.5">
            {names.map((name) => (
              <button
                key={name}
                type="button"
                aria-pressed={chosen.includes(name)}
                onClick={() => toggle(name)}
                className={cx(
                  "rounded-full border px-2.5 py-0.5 text-xs",
                  chosen.includes(name)
                    ? "border-accent-line/40 bg-accent-soft font-medium text-accent-ink"
                    : "text-muted hover:text-ink",
                )}
              >
                {getMetricLabel(t, name)}
              </button>
            ))}
          </div>
          <div className={cx("grid gap-4", shown.length > 1 && "xl:grid-cols-2")}>
            {shown.map((name) => (
              <MetricChart key={name} name={name} metrics={metrics} {...view} />
            ))}
          </div>
        </>
      )}
    </Card>
  );
}

function Controls({ view, onChange }: { view: View; onChange: (view: View) => void }) {
  const { t } = useTranslation();
  return (
    <div className="flex flex-wrap items-center gap-x-4 gap-y-2 text-sm text-muted">
      <label className="flex items-center gap-2">
        {t("task.smoothing")}
        <input
          type="range"
          min={0}
          max={0.98}
          step={0.02}
          value={view.smoothing}
          className="w-24 accent-accent"
          onChange={({ target }) => onChange({ ...view, smoothing: Number(target.value) })}
        />
        <output className="w-8 tabular-nums">{view.smoothing.toFixed(2)}</output>
      </label>
      <label className="flex items-center gap-1.5">
        <input
          type="checkbox"
          checked={view.log}
          onChange={({ target }) => onChange({ ...view, log: target.checked })}
        />
        {t("task.logScale")}
      </label>
    </div>
  );
}

function MetricChart({ name, metrics, smoothing, log }: View & { name: string; metrics: Metric[] }) {
  const { t } = useTranslation();
  const series = useMemo(() => buildSeries(metrics, name), [metrics, name]);
  const validation = useMemo(
    () => (name === "loss" ? buildSeries(metrics, VALIDATION).points : undefined),
    [metrics, name],
  );
  const label = getMetricLabel(t, name);
  const lines = useMemo(() => {
    const color = name === "loss" ? "--accent-ink" : "--info-ink";
    const raw: Line = { label, points: series.points, color };
    const found: Line[] = smoothing
      ? [
          { ...raw, label: t("task.smoothed", { name: label }), points: smoothPoints(series.points, smoothing) },
          { ...raw, look: "faint" },
        ]
      : [raw];
    if (validation?.size) {
      found.push({ label: t("task.validation"), points: validation, color: "--ok", look: "dots" });
    }
    if (series.discarded.size) {
      found.push({ label: t("task.discarded"), points: series.discarded, color: "--muted", look: "dashed" });
    }
    return found;
  }, [series, validation, smoothing, name, label, t]);
  const marks = useMemo(
    (): Mark[] => [
      ...series.restarts.map((step) => ({ step, label: t("task.restart"), color: "--warn-ink" })),
      ...series.notFinite
        .slice(-MAX_MARKS)
        .map(({ from, to }) => ({ step: from, to, label: "NaN", color: "--bad-ink" })),
    ],
    [series, t],
  );
  const gap = series.notFinite.at(-1);
  const newest = [...series.points.values()].at(-1);
  const value = gap?.open
    ? t("task.nanSince", { step: formatInteger(gap.from) })
    : newest === undefined
      ? ""
      : formatNumber(newest);
  return (
    <figure className="min-w-0">
      <figcaption className="mb-1 text-sm text-muted">
        {label}
        {gap?.open && <span className="ml-2 text-bad-ink">{value}</span>}
      </figcaption>
      <Chart label={`${label} ${value}`.trim()} lines={lines} marks={marks} stepLabel={t("task.step")} log={log} />
    </figure>
  );
}

/** Returns the label of a metric; a script's own metric keeps its name. */
function getMetricLabel(t: TFunction, name: string): string {
  if (name === "loss") return t("task.lossChart");
  return name === "tokens_per_s" ? t("task.throughputChart") : name;
}

import { useQuery } from "@tanstack/react-query";
import type { TFunction } from "i18next";
import { lazy, Suspense, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { type LogPattern, logPatternsQuery } from "@/api/log-patterns";
import { isFinished } from "@/api/tasks";
import type { Metric, Task } from "@/api/types";
import { withPageTexts } from "@/i18n";
import { cx } from "@/lib/cx";
import { formatNumber, formatInteger } from "@/lib/format";
import { Card } from "@/ui/card";
import { EmptyState } from "@/ui/empty-state";
import { MetricPicker } from "@/ui/metric-picker";
import { Chart, type Line, type Mark } from "./chart";
import { buildSeries, findLossName, groupSources, isValidationLoss, listMetricNames, smoothPoints } from "./series";
import { getSourceLabel } from "./sources";

const LogPatterns = lazy(() => withPageTexts(import("./log-patterns")));

const NO_PATTERNS: LogPattern[] = [];
const THROUGHPUT = "tokens_per_s";
/** Curves of one metric from different sources. */
const SOURCE_COLORS = ["--curve-2", "--curve-3", "--curve-4", "--curve-5"];
/** Number of ranges without finite values that are marked, the newest. */
const MAX_MARKS = 10;

interface View {
  smoothing: number;
  log: boolean;
}

interface ChartsProps {
  task: Task;
  metrics: Metric[];
  loading: boolean;
}

/** Charts of reported metrics. Several attempts form one line. */
export function Charts({ task, metrics, loading }: ChartsProps) {
  const { t } = useTranslation();
  const { data: patterns = NO_PATTERNS } = useQuery(logPatternsQuery(task.taskId, !isFinished(task)));
  const all = useMemo(() => listMetricNames(metrics), [metrics]);
  const loss = findLossName(all);
  /** A validation loss is drawn in the loss's chart. */
  const names = loss === undefined ? all : all.filter((name) => !isValidationLoss(name));
  const [changed, setChosen] = useState<string[]>();
  const chosen = changed ?? chooseMetrics(names, loss);
  const [view, setView] = useState<View>({ smoothing: 0, log: false });
  const shown = names.filter((name) => chosen.includes(name));
  return (
    <Card title={t("task.charts")} aside={names.length > 0 && <Controls view={view} onChange={setView} />}>
      {names.length === 0 ? (
        <div className={cx(loading && "min-h-84")}>{!loading && <EmptyState title={t("task.noMetrics")} />}</div>
      ) : (
        <>
          <div className="mb-3">
            <MetricPicker
              names={names}
              chosen={chosen}
              labelOf={(name) => getMetricLabel(t, name, loss)}
              onChange={setChosen}
            />
          </div>
          <div className={cx("grid gap-4", shown.length > 1 && "xl:grid-cols-2")}>
            {shown.map((name) => (
              <MetricChart
                key={name}
                name={name}
                loss={loss}
                names={all}
                metrics={metrics}
                patterns={patterns}
                {...view}
              />
            ))}
          </div>
        </>
      )}
      {patterns.length > 0 && (
        <Suspense>
          <LogPatterns task={task.taskId} patterns={patterns} />
        </Suspense>
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

interface MetricChartProps extends View {
  name: string;
  /** The name of the training loss. */
  loss: string | undefined;
  names: string[];
  metrics: Metric[];
  patterns: LogPattern[];
}

function MetricChart({ name, loss, names, metrics, patterns, smoothing, log }: MetricChartProps) {
  const { t } = useTranslation();
  const groups = useMemo(() => groupSources(metrics, name), [metrics, name]);
  const [main = [], ...others] = groups;
  const series = useMemo(() => buildSeries(metrics, name, groups[0]), [metrics, name, groups]);
  const validation = useMemo(
    () =>
      (name === loss ? names.filter(isValidationLoss) : []).map(
        (each) => [each, buildSeries(metrics, each, groupSources(metrics, each)[0]).points] as const,
      ),
    [metrics, name, loss, names],
  );
  const label = getMetricLabel(t, name, loss);
  const lines = useMemo(() => {
    const color = name === loss ? "--accent-ink" : "--info-ink";
    const [, ...rest] = groups;
    const raw: Line = {
      label: rest.length > 0 ? joinSources(t, label, groups[0]) : label,
      points: series.points,
      color,
    };
    const found: Line[] = smoothing
      ? [
          { ...raw, label: t("task.smoothed", { name: raw.label }), points: smoothPoints(series.points, smoothing) },
          { ...raw, look: "faint" },
        ]
      : [raw];
    for (const [at, sources] of rest.entries()) {
      const { points } = buildSeries(metrics, name, sources);
      const color = SOURCE_COLORS[at % SOURCE_COLORS.length] ?? "--muted";
      found.push({ label: joinSources(t, label, sources), points, color });
    }
    for (const [each, points] of validation) {
      const title = validation.length > 1 ? each : t("task.validation");
      if (points.size) found.push({ label: title, points, color: "--ok", look: "dots" });
    }
    if (series.discarded.size) {
      found.push({ label: t("task.discarded"), points: series.discarded, color: "--muted", look: "dashed" });
    }
    return found;
  }, [series, groups, metrics, validation, smoothing, name, loss, label, t]);
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
        <CurveSource name={name} sources={[...main, ...others.flat()]} patterns={patterns} />
        {gap?.open && <span className="ml-2 text-bad-ink">{value}</span>}
      </figcaption>
      <Chart label={`${label} ${value}`.trim()} lines={lines} marks={marks} stepLabel={t("task.step")} log={log} />
    </figure>
  );
}

/** Who reported a curve; of one that was found in the log, the lines. */
function CurveSource({ name, sources, patterns }: { name: string; sources: string[]; patterns: LogPattern[] }) {
  const { t } = useTranslation();
  const lines = patterns
    .filter(({ enabled, fields }) => enabled && fields.some(({ shownAs }) => shownAs === name))
    .map(({ line }) => line);
  return (
    <span className="ml-2 text-xs">
      {t("task.curveSource", { sources: sources.map((each) => getSourceLabel(t, each)).join(", ") })}
      {sources.includes("text") && lines.length > 0 && (
        <code className="ml-1 break-all" title={lines.join("\n")}>
          {lines[0]}
        </code>
      )}
    </span>
  );
}

/** Returns what is drawn until someone chooses. */
function chooseMetrics(names: string[], loss: string | undefined): string[] {
  const usual = [loss, THROUGHPUT].filter((name) => name !== undefined && names.includes(name)) as string[];
  return usual.length > 0 ? usual : names.slice(0, 2);
}

function joinSources(t: TFunction, label: string, sources: string[] = []): string {
  return `${label} · ${sources.map((source) => getSourceLabel(t, source)).join(", ")}`;
}

/** Returns the label of a metric; a script's own metric keeps its name. */
function getMetricLabel(t: TFunction, name: string, loss: string | undefined): string {
  if (name === loss) return t("task.lossChart");
  return name === THROUGHPUT ? t("task.throughputChart") : name;
}

import { useQuery } from "@tanstack/react-query";
import { ChartNoAxesCombined, ExternalLink } from "lucide-react";
import { lazy, Suspense, useMemo } from "react";
import { useTranslation } from "react-i18next";
import {
  comparisonQuery,
  type ComparedRun,
  type RunComparison,
  type RunCurve,
  type RunSeries,
  runSeriesQuery,
} from "@/api/compare";
import { canCreate, meQuery } from "@/api/session";
import { buildTensorboardAddress, MAX_TENSORBOARD_TASKS } from "@/api/tensorboards";
import { withPageTexts } from "@/i18n";
import { cx } from "@/lib/cx";
import { useDebounced } from "@/lib/hooks";
import { ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";
import { CopyButton } from "@/ui/copy-button";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { Page } from "@/ui/page";
import { buildBandLines, buildLines, chooseStyle, type RunStyle } from "./chart-data";
import { Controls } from "./controls";
import { CurveChart } from "./curve-chart";
import { Differences } from "./differences";
import { ParameterPlots } from "./parameter-plots";
import { RunList } from "./run-list";
import { formatView, type Statistic, useView, type View } from "./view";

const MediaPanel = lazy(() => withPageTexts(import("./media-panel")));

const POINTS = 500;
/** Milliseconds after the last change of what is requested. */
const SETTLED_MS = 150;
const NO_CURVES: RunCurve[] = [];

/** Compares up to 50 runs: their curves on one axis, their parameters, and what they logged besides numbers. */
export function Component() {
  const { t } = useTranslation();
  const { view, change } = useView();
  const comparison = useQuery(comparisonQuery(view.tasks, true));
  const title = t("compare.title");
  return (
    <Page title={title} actions={!view.embed && view.tasks.length > 0 && <ShareButtons view={view} />}>
      {view.tasks.length === 0 ? (
        <EmptyState title={t("compare.empty")} hint={t("compare.emptyHint")}>
          <ButtonLink to="/training">{t("app.tasks")}</ButtonLink>
        </EmptyState>
      ) : comparison.isError && !comparison.data ? (
        <LoadError error={comparison.error} retry={() => void comparison.refetch()} />
      ) : !comparison.data ? (
        <Loading tall />
      ) : (
        <Comparison comparison={comparison.data} view={view} onChange={change} />
      )}
    </Page>
  );
}

function ShareButtons({ view }: { view: View }) {
  const { t } = useTranslation();
  const me = useQuery(meQuery).data;
  const address = `${location.origin}/compare?${formatView(view).toString()}`;
  return (
    <>
      {view.tasks.length <= MAX_TENSORBOARD_TASKS && canCreate(me) && (
        <ButtonLink size="sm" to={buildTensorboardAddress(view.tasks)} target="_blank">
          <ChartNoAxesCombined />
          {t("tensorboard.open")}
        </ButtonLink>
      )}
      <CopyButton text={address} />
      <ButtonLink size="sm" to={`/compare?${formatView({ ...view, embed: true }).toString()}`} target="_blank">
        <ExternalLink />
        {t("compare.embed")}
      </ButtonLink>
    </>
  );
}

interface ComparisonProps {
  comparison: RunComparison;
  view: View;
  onChange: (to: Partial<View>) => void;
}

function Comparison({ comparison, view, onChange }: ComparisonProps) {
  const { t } = useTranslation();
  const { runs } = comparison;
  const live = runs.some(({ endedAt }) => endedAt === null);
  const first = comparison.metrics[0]?.name;
  const metrics = useMemo(
    () => (view.metrics.length > 0 ? view.metrics : first === undefined ? [] : [first]),
    [view.metrics, first],
  );
  const styles = useMemo(() => buildStyles(runs, view.colors), [runs, view.colors]);
  const visible = useMemo(() => runs.filter(({ taskId }) => !view.hidden.has(taskId)), [runs, view.hidden]);
  const wanted = useDebounced(
    useMemo(
      () => ({
        metric: metrics,
        axis: view.axis,
        points: POINTS,
        ...(view.from !== undefined && view.to !== undefined && { from: view.from, to: view.to }),
        ...(view.group && { groupBy: view.group }),
      }),
      [metrics, view.axis, view.from, view.to, view.group],
    ),
    SETTLED_MS,
  );
  const series = useQuery(runSeriesQuery(view.tasks, wanted, live));
  const curves = series.data?.series ?? NO_CURVES;
  const differing = useMemo(
    () => comparison.parameters.filter(({ differs }) => differs).map(({ name }) => name),
    [comparison.parameters],
  );
  const newest = useMemo(() => collectNewest(curves), [curves]);
  const metric = metrics[0] ?? "";
  const values = useMemo(() => collectValues(curves, metric, view.statistic), [curves, metric, view.statistic]);
  const [left, right] = visible;
  return (
    <div className="space-y-4">
      {left && right && visible.length === 2 && !view.embed && (
        <Card title={t("differences.title")}>
          <Differences left={left.taskId} right={right.taskId} />
        </Card>
      )}
      <Card title={t("compare.curves")}>
        {comparison.metrics.length === 0 && view.metrics.length === 0 ? (
          <EmptyState title={t("task.noMetrics")} />
        ) : (
          <>
            <Controls comparison={comparison} chosen={metrics} view={view} onChange={onChange} />
            {series.isError && <LoadError error={series.error} retry={() => void series.refetch()} />}
            {series.data && (!series.data.complete || !comparison.complete) && (
              <p role="status" className="mt-3 text-sm text-muted">
                {t("compare.reading")}
              </p>
            )}
            <div className={cx("mt-3 grid gap-4", metrics.length > 1 && "xl:grid-cols-2")}>
              {metrics.map((name) => (
                <MetricChart
                  key={name}
                  name={name}
                  series={series.data}
                  styles={styles}
                  visible={visible}
                  view={view}
                  onChange={onChange}
                />
              ))}
            </div>
            {series.data && <Absences absent={series.data.absent} visible={visible} />}
          </>
        )}
      </Card>
      <RunList
        runs={runs}
        styles={styles}
        parameters={differing}
        metrics={metrics}
        newest={newest}
        view={view}
        onChange={onChange}
      />
      <ParameterPlots
        runs={visible}
        styles={styles}
        parameters={differing}
        metric={metric}
        values={values}
        parameter={differing.includes(view.parameter) ? view.parameter : (differing[0] ?? "")}
        statistic={view.statistic}
        log={view.log}
        onParameter={(parameter) => onChange({ parameter })}
        onStatistic={(statistic) => onChange({ statistic })}
      />
      {comparison.media.length > 0 && (
        <Suspense>
          <MediaPanel media={comparison.media} runs={visible} styles={styles} />
        </Suspense>
      )}
    </div>
  );
}

interface MetricChartProps {
  name: string;
  series: RunSeries | undefined;
  styles: Map<string, RunStyle>;
  visible: ComparedRun[];
  view: View;
  onChange: (to: Partial<View>) => void;
}

function MetricChart({ name, series, styles, visible, view, onChange }: MetricChartProps) {
  const { t } = useTranslation();
  const { smoothing, extremes, axis, log, group } = view;
  const lines = useMemo(() => {
    if (!series) return [];
    const shown = new Set(visible.map(({ taskId }) => taskId));
    if (group) {
      const bands = series.bands.filter(({ metric }) => metric === name);
      return buildBandLines(bands, smoothing, (value, count) =>
        t("compare.groupOf", { name: group, value: value || "–", count }),
      );
    }
    const mine = series.series.filter(({ metric, taskId }) => metric === name && shown.has(taskId));
    return buildLines(mine, styles, { smoothing, extremes });
  }, [series, visible, styles, name, smoothing, extremes, group, t]);
  return (
    <figure className="min-w-0">
      <figcaption className="mb-1 text-sm text-muted">{name}</figcaption>
      {series && lines.length === 0 ? (
        <p className="py-16 text-center text-sm text-muted">{t("compare.noCurve")}</p>
      ) : (
        <CurveChart
          label={t("compare.chartOf", { name, count: lines.length })}
          lines={lines}
          axis={axis}
          log={log}
          range={{ from: view.from, to: view.to }}
          onRange={(from, to) => onChange({ from, to })}
        />
      )}
    </figure>
  );
}

/** What is missing, and why. */
function Absences({ absent, visible }: { absent: RunSeries["absent"]; visible: ComparedRun[] }) {
  const { t } = useTranslation();
  const shown = new Set(visible.map(({ taskId }) => taskId));
  const mine = absent.filter(({ taskId }) => shown.has(taskId));
  if (mine.length === 0) return null;
  return (
    <details className="mt-3 text-sm text-muted">
      <summary className="cursor-pointer">{t("compare.absent", { count: mine.length })}</summary>
      <ul className="mt-2 list-disc space-y-1 pl-5">
        {mine.map(({ taskId, metric, message, hint }) => (
          <li key={`${taskId} ${metric}`}>
            {message} {hint}
          </li>
        ))}
      </ul>
    </details>
  );
}

/** Returns the label, the colour and the dashes of each run. Runs of one name are told apart by their ids. */
function buildStyles(runs: ComparedRun[], colors: Map<string, number>): Map<string, RunStyle> {
  const counts = new Map<string, number>();
  for (const { taskName } of runs) counts.set(taskName, (counts.get(taskName) ?? 0) + 1);
  return new Map(
    runs.map(({ taskId, taskName }, index) => {
      const label = (counts.get(taskName) ?? 0) > 1 ? `${taskName} · ${taskId.slice(-6)}` : taskName;
      return [taskId, chooseStyle(index, label, colors.get(taskId))];
    }),
  );
}

function collectNewest(curves: RunCurve[]): Map<string, Map<string, number>> {
  const found = new Map<string, Map<string, number>>();
  for (const { taskId, metric, last } of curves) {
    const mine = found.get(taskId) ?? new Map<string, number>();
    found.set(taskId, mine);
    if (last !== null) mine.set(metric, last);
  }
  return found;
}

/** Returns by run the newest, lowest or highest value of a metric, within what is shown. */
function collectValues(curves: RunCurve[], name: string, statistic: Statistic): Map<string, number> {
  const found = new Map<string, number>();
  for (const { taskId, metric, last, y, low, high } of curves) {
    if (metric !== name) continue;
    const value =
      statistic === "last" ? last : statistic === "min" ? Math.min(...(low ?? y)) : Math.max(...(high ?? y));
    if (value !== null && Number.isFinite(value)) found.set(taskId, value);
  }
  return found;
}

import type { TFunction } from "i18next";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { isFinished } from "@/api/tasks";
import { taskTelemetryQuery } from "@/api/telemetry";
import type { Metric, Task, Telemetry } from "@/api/types";
import { formatNumber } from "@/lib/format";
import { parseNumberRanges } from "@/lib/number-ranges";
import { useLocalStorage } from "@/lib/use-local-storage";
import { Badge } from "@/ui/badge";
import { Button } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import type { ChartLine } from "@/ui/telemetry/chart-data";
import { ChartSelector, NumberRangeField } from "@/ui/telemetry/chart-selector";
import { Legend } from "@/ui/telemetry/legend";
import { useChartUrlState, useVisiblePanels } from "@/ui/telemetry/use-chart-url-state";
import { listMetrics, PANEL_IDS } from "@/ui/telemetry/metrics";
import { Caption, ChartPanels } from "@/ui/telemetry/chart-panels";
import { alignMetric, findStepAt, computeStepTicks } from "@/ui/telemetry/step-axis";
import { type Axis, type Curve, TimeChart } from "@/ui/telemetry/time-chart";

const MAX_POINTS = 300;
/** With more ranks, half the points of each are enough for a band. */
const LARGE_TASK_RANKS = 64;

interface Props {
  task: Task;
  metrics: Metric[];
  rank?: number;
}

/** GPU, CPU and network charts of a task, on one time axis with its loss. */
export default function TaskTelemetry({ task, metrics, rank }: Props) {
  const { t } = useTranslation();
  const { text, change, stretch, zoom } = useChartUrlState();
  const charts = useVisiblePanels(PANEL_IDS);
  const [below, setBelow] = useLocalStorage("machines.below");
  const bySteps = below === "steps" && metrics.length > 0;
  const node = parseNumberRanges(text("nodes"), task.nodeCount) ?? [];
  const chosen = parseNumberRanges(text("ranks"), task.worldSize) ?? [];
  const points = task.worldSize > LARGE_TASK_RANKS ? MAX_POINTS / 2 : MAX_POINTS;
  const wanted = { metric: listMetrics(charts.panels), points, stretch, node, rank: chosen };
  const reported = useQuery(taskTelemetryQuery(task.taskId, wanted, !isFinished(task)));
  const step = useMemo(() => (metrics.length > 0 ? findStepAt(metrics) : undefined), [metrics]);
  const ticks = useMemo(() => (bySteps ? computeStepTicks(metrics) : undefined), [bySteps, metrics]);
  const marks = useMemo(() => buildMarks(t, reported.data?.marks ?? []), [reported.data?.marks, t]);
  if (!reported.data)
    return reported.isError ? <LoadError error={reported.error} retry={() => void reported.refetch()} /> : <Loading />;
  const narrowed = stretch || node.length > 0 || chosen.length > 0;
  const hasLoss = metrics.some(({ values }) => values.loss != null);
  return (
    <div className="space-y-3">
      <div className="flex flex-wrap items-center gap-x-4 gap-y-2 text-sm">
        {reported.data.emulated && <Badge tone="warn">{t("machines.emulated")}</Badge>}
        <span className="text-muted pointer-coarse:hidden">{t("machines.drag")}</span>
        <span className="ml-auto flex flex-wrap items-center gap-x-3 gap-y-1">
          {narrowed && (
            <Button onClick={() => change({ from: "", to: "", nodes: "", ranks: "" })}>{t("machines.all")}</Button>
          )}
          {metrics.length > 0 && (
            <label className="flex items-center gap-1.5 text-muted">
              <input
                type="checkbox"
                checked={bySteps}
                onChange={({ target }) => setBelow(target.checked ? "steps" : null)}
              />
              {t("machines.bySteps")}
            </label>
          )}
          <ChartSelector ids={PANEL_IDS} charts={charts}>
            {task.nodeCount > 1 && (
              <NumberRangeField
                label={t("machines.nodes")}
                value={text("nodes")}
                count={task.nodeCount}
                onChange={(nodes) => change({ nodes })}
              />
            )}
            {task.worldSize > 1 && (
              <NumberRangeField
                label={t("machines.ranks")}
                value={text("ranks")}
                count={task.worldSize}
                onChange={(ranks) => change({ ranks })}
              />
            )}
          </ChartSelector>
        </span>
      </div>
      {reported.isError && <LoadError error={reported.error} retry={() => void reported.refetch()} />}
      {reported.data.series.length === 0 && (
        <EmptyState
          title={t("machines.nothing")}
          hint={t(
            narrowed ? "machines.nothingChosen" : isFinished(task) ? "machines.nothingOver" : "machines.nothingYet",
          )}
        />
      )}
      {reported.data.series.length > 0 && (
        <ChartPanels
          answer={reported.data}
          panels={charts.panels}
          marks={marks}
          alone={rank}
          ticks={ticks}
          step={step}
          onZoom={zoom}
          extra={hasLoss ? (axis) => <Loss metrics={metrics} axis={axis} step={step} /> : undefined}
        />
      )}
    </div>
  );
}

interface LossProps {
  metrics: Metric[];
  axis: Axis;
  step?: (at: number) => number | null;
}

function Loss({ metrics, axis, step }: LossProps) {
  const { t } = useTranslation();
  const title = t("task.lossChart");
  const { moments, curves, drawn } = useMemo(() => {
    const { moments, values } = alignMetric(metrics, "loss");
    const curves: Curve[] = [{ label: title, values, color: "--accent-ink", look: "strong" }];
    const drawn: ChartLine[] = [{ key: "loss", values, role: "line" }];
    return { moments, curves, drawn };
  }, [metrics, title]);
  return (
    <figure className="min-w-0">
      <Caption title={title} lines={drawn} moments={moments} cursor={axis.cursor} step={step} />
      <TimeChart label={title} axis={axis} moments={moments} curves={curves} text={formatNumber} />
      <Legend {...{ drawn, curves, moments }} cursor={axis.cursor} nodes={false} text={formatNumber} />
    </figure>
  );
}

const buildMarks = (t: TFunction, marks: Telemetry["marks"]) =>
  marks
    .map(({ at, code, attempt, failed }) => ({
      at: new Date(at).getTime() / 1000,
      label: t(code === "ATTEMPT_STARTED" ? "machines.attemptBegan" : "machines.attemptEnded", { attempt }),
      bad: failed,
    }))
    .sort((a, b) => a.at - b.at);

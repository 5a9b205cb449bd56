import { useId, useState } from "react";
import { useTranslation } from "react-i18next";
import type { ComparedRun } from "@/api/compare";
import { cx } from "@/lib/cx";
import { formatNumber } from "@/lib/format";
import { Card } from "@/ui/card";
import { getColorName, type RunStyle } from "./chart-data";
import { buildScale, type Scale } from "./plot-scales";
import { type Statistic, STATISTICS } from "./view";

const WIDTH = 640;
const HEIGHT = 260;
const MARGIN = { left: 64, right: 24, top: 28, bottom: 36 };
const MAX_AXES = 7;

interface PlotsProps {
  runs: ComparedRun[];
  styles: Map<string, RunStyle>;
  /** Names of parameters that differ between the runs. */
  parameters: string[];
  metric: string;
  /** Of the metric, by run. */
  values: Map<string, number>;
  parameter: string;
  statistic: Statistic;
  log: boolean;
  onParameter: (name: string) => void;
  onStatistic: (statistic: Statistic) => void;
}

/** How a metric depends on parameters: all of them as parallel axes, and one as a scatter plot. */
export function ParameterPlots(props: PlotsProps) {
  const { t } = useTranslation();
  const { parameters, parameter, statistic, metric, onParameter, onStatistic } = props;
  const [chosen, setChosen] = useState<string>();
  const runs = props.runs.filter(({ taskId }) => props.values.has(taskId));
  if (runs.length < 2 || parameters.length === 0) return null;
  return (
    <Card
      title={t("compare.parameters", { metric })}
      aside={
        <label className="flex items-center gap-2 text-sm text-muted">
          {t("compare.statistic")}
          <select
            className="control w-auto"
            value={statistic}
            onChange={({ target }) => onStatistic(STATISTICS.find((one) => one === target.value) ?? "last")}
          >
            {STATISTICS.map((one) => (
              <option key={one} value={one}>
                {t(`compare.statistics.${one}`)}
              </option>
            ))}
          </select>
        </label>
      }
    >
      <div className="grid gap-4 xl:grid-cols-2">
        <figure className="min-w-0">
          <figcaption className="mb-1 text-sm text-muted">{t("compare.parallel")}</figcaption>
          <ParallelCoordinates {...props} runs={runs} chosen={chosen} onChoose={setChosen} />
        </figure>
        <figure className="min-w-0">
          <figcaption className="mb-1 flex flex-wrap items-center gap-2 text-sm text-muted">
            {t("compare.scatter")}
            <select
              aria-label={t("compare.scatterParameter")}
              className="control w-auto max-w-60"
              value={parameter}
              onChange={({ target }) => onParameter(target.value)}
            >
              {parameters.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </figcaption>
          <Scatter {...props} runs={runs} chosen={chosen} onChoose={setChosen} />
        </figure>
      </div>
    </Card>
  );
}

interface PlotProps extends PlotsProps {
  chosen: string | undefined;
  onChoose: (run: string | undefined) => void;
}

function ParallelCoordinates({ runs, styles, parameters, metric, values, log, chosen, onChoose }: PlotProps) {
  const { t } = useTranslation();
  const bottom = HEIGHT - MARGIN.bottom;
  const axes = [
    ...parameters.slice(0, MAX_AXES - 1).map((name) => ({
      name,
      read: (run: ComparedRun) => run.parameters[name],
      scale: buildScale(
        runs.map(({ parameters: own }) => own[name]),
        bottom,
        MARGIN.top,
        false,
      ),
    })),
    {
      name: metric,
      read: (run: ComparedRun) => String(values.get(run.taskId)),
      scale: buildScale(
        runs.map(({ taskId }) => String(values.get(taskId))),
        bottom,
        MARGIN.top,
        log,
      ),
    },
  ];
  const place = (index: number) =>
    MARGIN.left + (index * (WIDTH - MARGIN.left - MARGIN.right)) / Math.max(1, axes.length - 1);
  return (
    <svg
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      className="w-full text-[10px]"
      role="img"
      aria-label={t("compare.parallel")}
    >
      {runs.map((run) => {
        const points = axes.map(({ read, scale }, index) => `${place(index)},${scale.place(read(run))}`);
        return (
          <RunMark key={run.taskId} run={run} styles={styles} chosen={chosen} onChoose={onChoose}>
            <polyline points={points.join(" ")} fill="none" />
          </RunMark>
        );
      })}
      {axes.map(({ name, scale }, index) => (
        <g key={name} transform={`translate(${place(index)} 0)`} className="fill-muted">
          <line y1={MARGIN.top} y2={bottom} className="stroke-muted" />
          <text
            y={14}
            textAnchor={index === 0 ? "start" : index === axes.length - 1 ? "end" : "middle"}
            className="fill-ink font-medium"
          >
            {shorten(name)}
          </text>
          <Ticks scale={scale} x={-6} anchor="end" />
        </g>
      ))}
    </svg>
  );
}

function Scatter({ runs, styles, parameter, metric, values, log, chosen, onChoose }: PlotProps) {
  const { t } = useTranslation();
  const bottom = HEIGHT - MARGIN.bottom;
  const known = runs.filter(({ parameters }) => parameters[parameter] !== undefined);
  const x = buildScale(
    known.map(({ parameters }) => parameters[parameter]),
    MARGIN.left,
    WIDTH - MARGIN.right,
    false,
  );
  const y = buildScale(
    known.map(({ taskId }) => String(values.get(taskId))),
    bottom,
    MARGIN.top,
    log,
  );
  return (
    <svg
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      className="w-full text-[10px]"
      role="img"
      aria-label={t("compare.scatterOf", { parameter, metric })}
    >
      <line x1={MARGIN.left} x2={WIDTH - MARGIN.right} y1={bottom} y2={bottom} className="stroke-muted" />
      <line x1={MARGIN.left} x2={MARGIN.left} y1={MARGIN.top} y2={bottom} className="stroke-muted" />
      <g transform={`translate(${MARGIN.left} 0)`} className="fill-muted">
        <Ticks scale={y} x={-6} anchor="end" />
      </g>
      {x.ticks.map(({ label, at }) => (
        <text key={label} x={at} y={bottom + 14} textAnchor="middle" className="fill-muted">
          {shorten(label)}
        </text>
      ))}
      <text x={WIDTH - MARGIN.right} y={HEIGHT - 4} textAnchor="end" className="fill-ink font-medium">
        {parameter}
      </text>
      <text x={4} y={14} className="fill-ink font-medium">
        {metric}
      </text>
      {known.map((run) => (
        <RunMark key={run.taskId} run={run} styles={styles} chosen={chosen} onChoose={onChoose}>
          <circle
            cx={x.place(run.parameters[parameter])}
            cy={y.place(String(values.get(run.taskId)))}
            r={5}
            className="fill-current"
          />
        </RunMark>
      ))}
    </svg>
  );
}

interface RunMarkProps {
  run: ComparedRun;
  styles: Map<string, RunStyle>;
  chosen: string | undefined;
  onChoose: (run: string | undefined) => void;
  children: React.ReactNode;
}

/** What is drawn of a run; the one under the pointer stands out. */
function RunMark({ run, styles, chosen, onChoose, children }: RunMarkProps) {
  const style = styles.get(run.taskId);
  const id = useId();
  if (!style) return null;
  return (
    <g
      aria-labelledby={id}
      style={{ color: `var(${getColorName(style.color)})` }}
      className={cx("stroke-current", chosen && chosen !== run.taskId && "opacity-15")}
      strokeWidth={chosen === run.taskId ? 3 : 1.5}
      onPointerEnter={() => onChoose(run.taskId)}
      onPointerLeave={() => onChoose(undefined)}
    >
      <title id={id}>{style.label}</title>
      {children}
    </g>
  );
}

function Ticks({ scale, x, anchor }: { scale: Scale; x: number; anchor: "end" | "middle" }) {
  return scale.ticks.map(({ label, at }) => (
    <text
      key={label}
      x={x}
      y={at + 3}
      textAnchor={anchor}
      className="stroke-surface"
      strokeWidth={3}
      paintOrder="stroke" // readable where lines of runs cross it
    >
      {shorten(label)}
    </text>
  ));
}

function shorten(text: string): string {
  const number = Number(text);
  const shown = text !== "" && Number.isFinite(number) ? formatNumber(number) : text;
  return shown.length > 14 ? `${shown.slice(0, 13)}…` : shown;
}

import type { TFunction } from "i18next";
import { memo, useId, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import type { TimeRange } from "@/api/telemetry";
import type { TelemetrySeries } from "@/api/types";
import { formatDateTime } from "@/lib/format";
import {
  type ChartLine,
  buildTimestamps as momentsOf,
  findNewestIndex,
  type Panel,
  buildPanels,
  findGaps,
  getValueAt,
} from "./chart-data";
import { ChartCursor, findNearestIndex, useChartCursor } from "./use-chart-cursor";
import { Legend } from "./legend";
import type { TimeMark } from "./mark-labels";
import { getPanelConfig, type PanelId } from "./metrics";
import { formatSeriesName, formatValue } from "./labels";
import { type Axis, type Curve, TimeChart } from "./time-chart";

/** Colours that are distinct with colour blindness; further lines are dashed. */
const COLORS = ["--curve-1", "--curve-2", "--curve-3", "--curve-4", "--curve-5", "--curve-6", "--curve-7"];
const DASHES = [undefined, [6, 3], [2, 2], [8, 3, 2, 3]];
const NO_MARKS: TimeMark[] = [];
/** A shorter range has no points. */
const MIN_ZOOM_S = 60;

export interface Answer {
  from: string;
  to: string;
  stepSeconds: number;
  series: TelemetrySeries[];
}

interface Props {
  answer: Answer;
  panels: PanelId[];
  marks?: TimeMark[];
  /** A rank that is drawn as a line of its own. */
  alone?: number;
  ticks?: Axis["ticks"];
  /** Returns the training step at a time. */
  step?: (at: number) => number | null;
  /** Content above the charts on the same axis. */
  extra?: (axis: Axis) => React.ReactNode;
  onZoom: (stretch: TimeRange | undefined) => void;
}

/** Charts on one time axis with a common cursor. Dragging zooms in. */
export function ChartPanels({ answer, panels: ids, marks = NO_MARKS, alone, ticks, step, extra, onZoom }: Props) {
  const { t } = useTranslation();
  const group = useId();
  const [cursor] = useState(() => new ChartCursor());
  const { stepSeconds, series } = answer;
  const [from, to] = [new Date(answer.from).getTime() / 1000, new Date(answer.to).getTime() / 1000];
  const panels = useMemo(() => buildPanels(series, ids, alone), [series, ids, alone]);
  const count = series[0]?.values.length ?? 0;
  const moments = useMemo(() => momentsOf(answer.from, stepSeconds, count), [answer.from, stepSeconds, count]);
  const axis = useMemo<Axis>(
    () => ({
      ...{ from, to, group, cursor, marks, ticks },
      silences: findGaps(series, moments, to),
      onZoom: (from, to) => {
        const missing = Math.max(0, MIN_ZOOM_S - (to - from)) / 2;
        onZoom({ from: (from - missing) * 1000, to: (to + missing) * 1000 });
      },
      onAll: () => onZoom(undefined),
    }),
    [from, to, group, cursor, marks, ticks, series, moments, onZoom],
  );
  const unmeasured = ids.filter((id) => !panels.some((panel) => panel.id === id) && !getPanelConfig(id).atFirst);
  return (
    <>
      <div className="grid gap-x-4 gap-y-4 xl:grid-cols-2">
        {extra?.(axis)}
        {panels.map((panel) => (
          <ChartFigure key={panel.id} panel={panel} axis={axis} moments={moments} step={step} />
        ))}
      </div>
      {unmeasured.length > 0 && (
        <p className="mt-3 text-sm text-muted">
          {t("machines.unmeasured", {
            names: unmeasured.map((id) => t(`machines.panel.${id}`)).join(t("queue.comma")),
          })}
        </p>
      )}
    </>
  );
}

interface FigureProps {
  panel: Panel;
  axis: Axis;
  moments: number[];
  step?: (at: number) => number | null;
}

const ChartFigure = memo(function Figure({ panel, axis, moments, step }: FigureProps) {
  const { t } = useTranslation();
  const [emphasis, setEmphasis] = useState<number>();
  const { id, unit, drawn, nodes } = panel;
  const curves = useMemo(() => buildCurves(t, drawn, nodes), [t, drawn, nodes]);
  const text = (value: number) => formatValue(t, id, unit, value);
  const title = t(`machines.panel.${id}`);
  return (
    <figure className="min-w-0">
      <Caption title={title} lines={drawn} moments={moments} cursor={axis.cursor} step={step} />
      <TimeChart
        label={`${title}: ${formatSummary(t, panel, text)}`}
        axis={axis}
        moments={moments}
        curves={curves}
        emphasis={emphasis}
        binary={unit.startsWith("B")}
        top={getPanelConfig(id).top}
        near={getPanelConfig(id).near}
        text={text}
      />
      <Legend {...{ drawn, curves, moments, nodes, text }} cursor={axis.cursor} onEmphasis={setEmphasis} />
    </figure>
  );
});

interface CaptionProps {
  title: string;
  lines: { values: (number | null)[] }[];
  moments: number[];
  cursor: ChartCursor;
  step?: (at: number) => number | null;
}

/** A chart's title, and the time that its legend shows. */
export function Caption({ title, lines, moments, cursor, step }: CaptionProps) {
  const { t } = useTranslation();
  const chosen = useChartCursor(cursor, (at) => findNearestIndex(moments, at));
  const at = moments[chosen ?? findNewestIndex(lines.map(({ values }) => values))];
  const reached = at === undefined ? null : (step?.(at) ?? null);
  const time = at === undefined ? "" : formatDateTime(new Date(at * 1000).toISOString());
  return (
    <figcaption className="flex h-5 items-baseline justify-between gap-x-3 overflow-hidden">
      <span className="text-sm whitespace-nowrap">{title}</span>
      <span className="truncate text-xs text-muted tabular-nums">
        {chosen === null && time ? t("machines.newest", { time }) : time}
        {reached !== null && ` · ${t("machines.step", { step: reached })}`}
      </span>
    </figcaption>
  );
}

/** Returns the curves, by colour; dashed if there are more than colours, or several metrics. */
function buildCurves(t: TFunction, drawn: ChartLine[], nodes: boolean): Curve[] {
  const lines = drawn.flatMap(({ role, series }) => (role === "line" && series ? [series] : []));
  const whose = (one: TelemetrySeries) => [one.node, one.rank, one.index].join(" ");
  const owners = [...new Set(lines.map(whose))];
  const metrics = [...new Set(lines.map(({ metric }) => metric))];
  const inBand = lines.length < drawn.length;
  return drawn.map(({ role, values, series }) => {
    if (role === "line" && series && inBand)
      return { label: formatSeriesName(t, series, nodes), values, color: "--curve-3", look: "line" };
    if (role === "line" && series) {
      const place = owners.indexOf(whose(series));
      const color = COLORS[place % COLORS.length] ?? "--muted";
      const rows = Math.ceil(owners.length / COLORS.length);
      const dash = DASHES[metrics.indexOf(series.metric) * rows + Math.floor(place / COLORS.length)];
      return {
        label: formatSeriesName(t, series, nodes),
        values,
        color,
        dash,
        look: drawn.length > 1 ? "line" : "strong",
      };
    }
    if (role === "middle") return { label: t("machines.middle"), values, color: "--accent-ink", look: "strong" };
    if (role === "high" || role === "low")
      return { label: t("machines.most80"), values, color: "--accent-line", look: "edge" };
    const color = role === "most" ? "--curve-2" : "--curve-1";
    return { label: t(role === "most" ? "machines.most" : "machines.least"), values, color, look: "thin" };
  });
}

/** Returns the newest value, or the range of several. */
function formatSummary(t: TFunction, { drawn, count }: Panel, text: (value: number) => string): string {
  const at = findNewestIndex(drawn.map(({ values }) => values));
  const newest = drawn.flatMap(({ values }) => getValueAt(values, at, true) ?? []);
  const [least, most] = [Math.min(...newest), Math.max(...newest)];
  const range = least === most ? text(most) : `${text(least)} – ${text(most)}`;
  return count > 1 ? t("machines.of", { range, count }) : range;
}

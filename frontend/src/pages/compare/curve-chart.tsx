import { useEffect, useMemo, useRef, useState } from "react";
import type { TFunction } from "i18next";
import { useTranslation } from "react-i18next";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Axis } from "@/api/compare";
import { useTheme } from "@/app/theme";
import { formatDateTime, formatDuration, formatInteger, formatNumber } from "@/lib/format";
import { alignLines, findValue, type Line } from "./chart-data";

const HEIGHT = 260;
const DIGIT_PX = 7;
const AXIS_PADDING_PX = 20;
/** A narrower selection is a click. */
const MIN_SELECTION_PX = 6;
/** Lines whose values are written below the chart: those that are closest to the cursor. */
const MAX_READINGS = 8;
const LOGARITHMIC = { distr: 3 } as unknown as uPlot.Scale; // uPlot exports its enum as a type only

interface CurveChartProps {
  label: string;
  lines: Line[];
  axis: Axis;
  log: boolean;
  /** The part of the axis that is shown; the whole one where an end is missing. */
  range: { from: number | undefined; to: number | undefined };
  onRange: (from: number | undefined, to: number | undefined) => void;
}

interface Reading {
  place: number;
  values: { line: Line; value: number }[];
  more: number;
}

/** Curves of several runs. A part that is dragged over is shown alone; a double click shows the whole again. */
export function CurveChart({ label, lines, axis, log, range, onRange }: CurveChartProps) {
  const { t } = useTranslation();
  const box = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  const [reading, setReading] = useState<Reading>();
  const aligned = useMemo(() => alignLines(lines, log), [lines, log]);
  const handlers = useRef({ lines, onRange });
  useEffect(() => {
    handlers.current = { lines, onRange };
  });

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const style = getComputedStyle(document.documentElement);
    const color = (name: string) => style.getPropertyValue(name).trim();
    const grid = {
      stroke: color("--muted"),
      grid: { stroke: color("--line"), width: 1 },
      ticks: { stroke: color("--line"), width: 1 },
    };
    const { data, edges } = aligned;
    const shaded = lines.filter(({ low, high }) => low && high);
    const plot = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        padding: [14, 20, 0, 0],
        legend: { show: false },
        scales: {
          x: {
            time: axis === "time",
            ...(range.from !== undefined && range.to !== undefined && { range: [range.from, range.to] }),
          },
          y: log ? LOGARITHMIC : {},
        },
        cursor: { points: { size: 5 }, drag: { x: true, y: false, setScale: false }, sync: { key: "compare" } },
        axes: [
          {
            ...grid,
            ...(axis !== "time" && {
              values: (_: uPlot, ticks: number[]) => ticks.map((tick) => formatPlace(t, axis, tick)),
            }),
          },
          {
            ...grid,
            size: (_, texts: string[] | null) =>
              Math.max(5, ...(texts ?? []).map((text) => text.length)) * DIGIT_PX + AXIS_PADDING_PX,
            values: (_, ticks) => ticks.map((tick: number | null) => (tick === null ? "" : formatNumber(tick))),
          },
        ],
        series: [
          {},
          ...lines.map((line) => ({
            stroke: color(line.color),
            width: line.faint ? 1 : 1.5,
            alpha: line.faint ? 0.25 : 1,
            dash: line.dash,
            spanGaps: true,
            points: { show: line.x.length === 1 },
          })),
          ...shaded.flatMap(() => [
            { width: 0, spanGaps: true, points: { show: false } },
            { width: 0, spanGaps: true, points: { show: false } },
          ]),
        ],
        bands: edges.map(([high, low], at) => ({
          series: [high, low] as [number, number],
          fill: withAlpha(color(shaded[at]?.color ?? "--muted")),
        })),
        hooks: {
          setSelect: [
            (u) => {
              const { left, width } = u.select;
              if (width < MIN_SELECTION_PX) return;
              handlers.current.onRange(u.posToVal(left, "x"), u.posToVal(left + width, "x"));
            },
          ],
          setCursor: [(u) => setReading(readCursor(u, handlers.current.lines))],
        },
      },
      data,
      element,
    );
    const reset = () => handlers.current.onRange(undefined, undefined);
    plot.over.addEventListener("dblclick", reset);
    const resizing = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    resizing.observe(element);
    return () => {
      resizing.disconnect();
      plot.destroy();
    };
  }, [aligned, lines, axis, log, theme, t, range.from, range.to]);

  return (
    <div className="min-w-0">
      <div ref={box} role="img" aria-label={label} className="min-w-0" />
      <div aria-hidden className="min-h-10 text-xs text-muted">
        {reading && reading.values.length > 0 && (
          <>
            <span className="mr-3 tabular-nums">{formatPlace(t, axis, reading.place, true)}</span>
            {reading.values.map(({ line, value }) => (
              <span key={line.key} className="mr-3 inline-flex max-w-60 items-center gap-1">
                <span className="size-2 shrink-0 rounded-full" style={{ background: `var(${line.color})` }} />
                <span className="truncate">{line.label}</span>
                <span className="text-ink tabular-nums">{formatNumber(value)}</span>
              </span>
            ))}
            {reading.more > 0 && t("compare.moreReadings", { count: reading.more })}
          </>
        )}
      </div>
    </div>
  );
}

/** Returns the values of the lines at the cursor, the closest to it first; undefined where it is outside. */
function readCursor(u: uPlot, lines: Line[]): Reading | undefined {
  const at = u.cursor.idx;
  if (at == null) return undefined;
  const height = u.posToVal(u.cursor.top ?? 0, "y");
  const found = lines.flatMap((line, index) => {
    const value = line.faint ? null : findValue(u.data[index + 1] as (number | null)[], at);
    return value === null ? [] : [{ line, value }];
  });
  found.sort((one, other) => Math.abs(one.value - height) - Math.abs(other.value - height));
  return {
    place: u.data[0][at] ?? 0,
    values: found.slice(0, MAX_READINGS),
    more: Math.max(0, found.length - MAX_READINGS),
  };
}

/** Returns a place on an axis as text. */
function formatPlace(t: TFunction, axis: Axis, place: number, precise = false): string {
  if (axis === "time") return formatDateTime(new Date(place * 1000).toISOString());
  if (axis === "relativeTime") return formatDuration(t, place);
  if (axis === "gpuHours") return formatNumber(place);
  if (precise) return formatInteger(Math.round(place));
  return Number.isInteger(place) ? formatInteger(place) : "";
}

/** Returns a colour with which an area is filled; the style sheet writes colours as `#rrggbb`. */
function withAlpha(color: string): string {
  return /^#[0-9a-f]{6}$/i.test(color) ? `${color}2e` : color;
}

import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useTheme } from "@/app/theme";
import { getLocale } from "@/i18n";
import type { ChartCursor } from "./use-chart-cursor";
import { groupMarkLabels, type TimeMark } from "./mark-labels";

export interface Curve {
  label: string;
  values: (number | null)[];
  /** A CSS custom property. */
  color: string;
  dash?: number[];
  /** The area between two edges is filled. */
  look: "line" | "strong" | "thin" | "edge";
}

/** The axis that charts below each other share. */
export interface Axis {
  /** Unix seconds. */
  from: number;
  to: number;
  /** Charts with a common cursor. */
  group: string;
  cursor: ChartCursor;
  marks: TimeMark[];
  /** Ranges without samples. */
  silences: [number, number][];
  /** Labels below the charts instead of times. */
  ticks?: (from: number, to: number, most: number) => { at: number; step: number }[];
  onZoom: (from: number, to: number) => void;
  onAll: () => void;
}

interface Props {
  label: string;
  axis: Axis;
  /** Unix seconds. */
  moments: number[];
  curves: Curve[];
  /** The index of the emphasized curve. */
  emphasis?: number;
  /** The values are bytes. */
  binary?: boolean;
  /** The axis' maximum. */
  top?: number;
  /** The axis does not start at zero. */
  near?: boolean;
  text: (value: number) => string;
}

const HEIGHT = 156;
/** Margins of the plot, the same for all charts. */
export const LEFT = 78;
export const RIGHT = 12;
const ABOVE = 16;
const BELOW = 28;
const MIN_TICK_PX = 72;
const DAY = 86_400;
/** Ticks that are round in bytes: 1, 2, 4 … of each unit. */
const BINARY = Array.from({ length: 60 }, (_, power) => 2 ** power);
const WIDTH = { line: 1.25, strong: 2, thin: 1, edge: 0 };

/** A metric over time. Dragging selects a range to zoom to. */
export function TimeChart({ label, axis, moments, curves, emphasis, binary, top, near, text }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(null);
  const now = useRef({ axis, text });
  useEffect(() => {
    now.current = { axis, text };
  });
  const theme = useTheme();
  const { group, cursor } = axis;
  const looks = JSON.stringify(curves.map(({ label, color, dash, look }) => ({ label, color, dash, look })));
  const bySteps = axis.ticks !== undefined;

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const style = getComputedStyle(document.documentElement);
    const color = (name: string) => style.getPropertyValue(name).trim();
    const known = JSON.parse(looks) as Omit<Curve, "values">[];
    const edges = known.flatMap(({ look }, at) => (look === "edge" ? [at + 1] : []));
    const rule = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
    const round = (u: uPlot) => now.current.axis.ticks?.(...getTimeRange(u), Math.floor(u.width / MIN_TICK_PX)) ?? [];
    const made = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        padding: [ABOVE, RIGHT, 0, 0],
        legend: { show: false },
        focus: { alpha: 0.15 },
        scales: {
          x: { range: () => [now.current.axis.from, now.current.axis.to] },
          y: { range: (_, least, most) => computeValueRange(least, most, top, near) },
        },
        cursor: {
          y: false,
          sync: { key: group },
          points: { size: 5 },
          drag: { x: true, y: false, setScale: false },
          bind: { dblclick: () => () => (now.current.axis.onAll(), null) },
        },
        axes: [
          {
            ...rule,
            size: BELOW,
            space: MIN_TICK_PX,
            ...(bySteps && { splits: (u: uPlot) => round(u).map(({ at }) => at) }),
            values: (u, ticks) =>
              bySteps
                ? round(u).map(({ step }) => step.toLocaleString(getLocale()))
                : ticks.map((at) => formatTimeTick(at, getTimeRange(u)[1] - getTimeRange(u)[0])),
          },
          {
            ...rule,
            values: (_, ticks) => ticks.map((tick: number | null) => (tick === null ? "" : now.current.text(tick))),
            size: LEFT,
            ...(binary && { incrs: BINARY }),
          },
        ],
        series: [
          {},
          ...known.map((curve) => ({
            label: curve.label,
            stroke: color(curve.color),
            width: WIDTH[curve.look],
            dash: curve.dash,
            points: { show: true, size: 4, width: 0, fill: color(curve.color), filter: findIsolatedPoints },
          })),
        ],
        bands:
          edges.length === 2
            ? [{ series: [edges[0] ?? 1, edges[1] ?? 2], fill: buildFaintColor(color("--accent-line"), 22) }]
            : [],
        hooks: {
          drawClear: [(u) => drawGaps(u, now.current.axis.silences, color("--sunken"))],
          draw: [(u) => drawMarks(u, now.current.axis.marks, color("--warn-ink"), color("--bad-ink"))],
          setSelect: [
            (u) => {
              const { left, width } = u.select;
              if (width > 4) now.current.axis.onZoom(u.posToVal(left, "x"), u.posToVal(left + width, "x"));
              u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            },
          ],
        },
      },
      [[]],
      element,
    );
    plot.current = made;
    const move = ({ offsetX }: MouseEvent) => cursor.set(made.posToVal(offsetX, "x"));
    const leave = () => cursor.set(null);
    made.over.addEventListener("mousemove", move);
    made.over.addEventListener("mouseleave", leave);
    const resizing = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    resizing.observe(element);
    return () => {
      resizing.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [looks, theme, group, cursor, bySteps, binary, top, near]);

  useEffect(() => {
    plot.current?.setData([moments, ...curves.map(({ values }) => values)]);
  }, [axis, moments, curves, theme, bySteps, binary, top, near]);

  useEffect(() => {
    plot.current?.setSeries(emphasis === undefined ? null : emphasis + 1, { focus: true });
  }, [emphasis]);

  return <div ref={box} role="img" aria-label={label} className="min-w-0" />;
}

const buildFaintColor = (color: string, percent: number) => `color-mix(in srgb, ${color} ${percent}%, transparent)`;

const getTimeRange = (u: uPlot): [number, number] => [u.scales.x?.min ?? 0, u.scales.x?.max ?? 0];

function computeValueRange(least: number | null, most: number | null, top = 0, near = false): [number, number] {
  const highest = Math.max(most ?? 0, top);
  if (!near || least === null) return [Math.min(0, least ?? 0), (highest > top ? highest * 1.05 : highest) || 1];
  const beside = Math.max((highest - least) / 8, highest / 20, 1);
  return [Math.max(0, least - beside), highest + beside];
}

/** Returns the points without neighbours to draw a line to. */
function findIsolatedPoints(u: uPlot, series: number): number[] {
  const values = u.data[series] ?? [];
  const found: number[] = [];
  for (let at = 0; at < values.length; at++)
    if (values[at] != null && values[at - 1] == null && values[at + 1] == null) found.push(at);
  return found;
}

/** Formats a tick: with the date over several days, with seconds over minutes. */
function formatTimeTick(at: number, span: number): string {
  return new Date(at * 1000).toLocaleString(getLocale(), {
    ...(span > 2 * DAY && { month: "numeric", day: "numeric" }),
    ...(span <= 20 * DAY && { hour: "2-digit", minute: "2-digit", hour12: false }),
    ...(span < 600 && { second: "2-digit" }),
  });
}

function drawGaps(u: uPlot, silences: [number, number][], color: string): void {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.fillStyle = color;
  const place = (at: number) => Math.min(Math.max(u.valToPos(at, "x", true), bbox.left), bbox.left + bbox.width);
  for (const [from, to] of silences) ctx.fillRect(place(from), bbox.top, place(to) - place(from), bbox.height);
  ctx.restore();
}

function drawMarks(u: uPlot, marks: TimeMark[], color: string, bad: string): void {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  ctx.font = `${10 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  const right = bbox.left + bbox.width;
  const seen = marks
    .map((mark) => ({ ...mark, x: Math.round(u.valToPos(mark.at, "x", true)) }))
    .filter(({ x }) => x >= bbox.left && x <= right);
  for (const { x, bad: isBad } of seen) {
    ctx.strokeStyle = isBad ? bad : color;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top - 2 * devicePixelRatio);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  for (const { x, text, bad: isBad } of groupMarkLabels(seen, (text) => ctx.measureText(text).width, right)) {
    ctx.fillStyle = isBad ? bad : color;
    ctx.fillText(text, x, bbox.top - 5 * devicePixelRatio);
  }
  ctx.restore();
}

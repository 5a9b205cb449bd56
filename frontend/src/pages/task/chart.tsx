import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useTheme } from "@/app/theme";
import { formatNumber, formatInteger } from "@/lib/format";
import { alignSeries, type Points } from "./series";

export interface Line {
  label: string;
  points: Points;
  /** A CSS custom property such as `--accent-ink`. */
  color: string;
  look?: "line" | "dashed" | "dots" | "faint";
}

/** A marked step with its label. */
export interface Mark {
  step: number;
  /** The end of a marked range. */
  to?: number;
  label: string;
  /** A CSS custom property. */
  color: string;
}

interface ChartProps {
  label: string;
  lines: Line[];
  marks: Mark[];
  stepLabel: string;
  /** Logarithmic axis; values that are not positive are left out. */
  log: boolean;
}

const HEIGHT = 220;
/** Width of a digit, and space beside the labels of an axis, in pixels. */
const DIGIT_PX = 7;
const AXIS_PADDING_PX = 20;
const LOGARITHMIC = { distr: 3 } as unknown as uPlot.Scale; // uPlot exports its enum as a type only

/** A chart of steps. New points replace its data; other changes create it anew. */
export function Chart({ label, lines, marks, stepLabel, log }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(null);
  const drawn = useRef(marks);
  const theme = useTheme();
  const looks = JSON.stringify(lines.map((line) => ({ ...line, points: undefined })));

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const style = getComputedStyle(document.documentElement);
    const color = (name: string) => style.getPropertyValue(name).trim();
    const axis = {
      stroke: color("--muted"),
      grid: { stroke: color("--line"), width: 1 },
      ticks: { stroke: color("--line"), width: 1 },
    };
    const made = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        padding: [14, 20, 0, 0],
        scales: { x: { time: false }, y: log ? LOGARITHMIC : {} },
        cursor: { points: { size: 6 }, drag: { x: true, y: false } },
        axes: [
          { ...axis, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? formatInteger(tick) : "")) },
          {
            ...axis,
            size: (_, texts: string[] | null) =>
              Math.max(5, ...(texts ?? []).map((text) => text.length)) * DIGIT_PX + AXIS_PADDING_PX,
            values: (_, ticks) => ticks.map((tick: number | null) => (tick === null ? "" : formatNumber(tick))),
          },
        ],
        series: [
          { label: stepLabel },
          ...(JSON.parse(looks) as Line[]).map((line) => ({
            label: line.label,
            stroke: color(line.color),
            width: line.look === "dots" ? 0 : 1.5,
            alpha: line.look === "faint" ? 0.3 : 1,
            dash: line.look === "dashed" ? [4, 4] : undefined,
            points: line.look === "dots" ? { show: true, size: 6, fill: color(line.color) } : { show: isIsolatedPoint },
            spanGaps: true,
            value: (_: uPlot, value: number | null) => (value == null ? "–" : formatNumber(value)),
          })),
        ],
        hooks: { draw: [(u) => drawMarks(u, drawn.current, color)] },
      },
      [[]],
      element,
    );
    plot.current = made;
    const resizing = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    resizing.observe(element);
    return () => {
      resizing.disconnect();
      made.destroy();
    };
  }, [looks, theme, stepLabel, log]);

  useEffect(() => {
    drawn.current = marks;
    const u = plot.current;
    const marked = marks.flatMap(({ step, to }) => [step, to ?? step]);
    const data = alignSeries(
      lines.map((line) => (log ? keepPositive(line.points) : line.points)),
      marked,
    );
    u?.setData(data);
    if (u && u.cursor.idx == null) {
      queueMicrotask(() => u.setLegend({ idx: data[0].length - 1 })); // after uPlot's own handler, which clears it
    }
  }, [lines, marks, looks, theme, stepLabel, log]);

  return <div ref={box} role="img" aria-label={label} className="min-w-0" />;
}

/** Returns whether a point has no neighbours to draw a line to. */
function isIsolatedPoint(u: uPlot, series: number): boolean {
  return (u.data[series] ?? []).filter((value) => value != null).length === 1;
}

function keepPositive(points: Points): Points {
  return new Map([...points].filter(([, value]) => value > 0));
}

function drawMarks(u: uPlot, marks: Mark[], colorOf: (name: string) => string): void {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  ctx.font = `${11 * devicePixelRatio}px sans-serif`;
  ctx.textAlign = "left";
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const { step, label, color } of marks) {
    ctx.strokeStyle = ctx.fillStyle = colorOf(color);
    const x = Math.round(u.valToPos(step, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText(label, x + 4 * devicePixelRatio, bbox.top + 10 * devicePixelRatio);
  }
  ctx.restore();
}

import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useTheme } from "@/app/theme";
import { locale } from "@/i18n";

export interface Curve {
  label: string;
  values: (number | null)[];
  /** A custom property of the style sheet. */
  color: string;
  look: "line" | "strong" | "edge";
}

export interface TimeMark {
  at: number;
  label: string;
  bad?: boolean;
}

interface Props {
  label: string;
  /** Unix seconds. */
  moments: number[];
  curves: Curve[];
  marks: TimeMark[];
  /** Charts of one page that move together. */
  group: string;
  /** The values are bytes. */
  binary?: boolean;
  text: (value: number) => string;
  /** What stands below the chart at a moment, where it is not the time. */
  below?: (at: number) => string;
  onZoom: (from: number, to: number) => void;
}

const HEIGHT = 150;
/** The same for all, so that their axes of time lie below each other. */
const AXIS = 78;
const APART = 72;
const DAY = 86_400;
/** Ticks that are round in bytes: 1, 2, 4 … of each unit. */
const BINARY = Array.from({ length: 60 }, (_, power) => 2 ** power);

/** One thing that was measured, over time. The first two curves that are edges have the space between them filled. */
export function TimeChart({ label, moments, curves, marks, group, binary, text, below, onZoom }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(null);
  const now = useRef({ marks, text, below, onZoom });
  useEffect(() => {
    now.current = { marks, text, below, onZoom };
  });
  const theme = useTheme();
  const looks = JSON.stringify(curves.map(({ label, color, look }) => ({ label, color, look })));
  const bySteps = below !== undefined;

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const style = getComputedStyle(document.documentElement);
    const color = (name: string) => style.getPropertyValue(name).trim();
    const known = JSON.parse(looks) as Omit<Curve, "values">[];
    const edges = known.flatMap(({ look }, at) => (look === "edge" ? [at + 1] : []));
    const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
    const made = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        padding: [8, 12, 0, 0],
        legend: { show: false },
        scales: { y: { range: (_, least, most) => [Math.min(0, least), most * 1.05 || 1] } },
        cursor: { sync: { key: group }, points: { size: 5 }, drag: { x: true, y: false, setScale: false } },
        axes: [
          {
            ...axis,
            space: APART,
            values: (u, ticks) =>
              ticks.map((at) => (bySteps ? (now.current.below?.(at) ?? "") : timeText(at, spanOf(u)))),
          },
          {
            ...axis,
            values: (_, ticks) => ticks.map((tick: number | null) => (tick === null ? "" : now.current.text(tick))),
            size: AXIS,
            ...(binary && { incrs: BINARY }),
          },
        ],
        series: [
          {},
          ...known.map((curve) => ({
            label: curve.label,
            stroke: color(curve.color),
            width: curve.look === "edge" ? 0.5 : curve.look === "strong" ? 2 : 1.25,
            alpha: curve.look === "edge" ? 0.5 : 1,
            points: { show: false },
          })),
        ],
        bands:
          edges.length === 2 ? [{ series: [edges[0] ?? 1, edges[1] ?? 2], fill: `${color("--accent-line")}33` }] : [],
        hooks: {
          draw: [(u) => drawMarks(u, now.current.marks, color("--warn-ink"), color("--bad-ink"))],
          setSelect: [
            (u) => {
              const { left, width } = u.select;
              if (width > 4) now.current.onZoom(u.posToVal(left, "x"), u.posToVal(left + width, "x"));
              u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            },
          ],
        },
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
  }, [looks, theme, group, bySteps, binary]);

  useEffect(() => {
    plot.current?.setData([moments, ...curves.map(({ values }) => values)]);
  }, [moments, curves, looks, theme, group, bySteps, binary]);

  return <div ref={box} role="img" aria-label={label} className="min-w-0" />;
}

const spanOf = (u: uPlot) => (u.scales.x?.max ?? 0) - (u.scales.x?.min ?? 0);

/** The day where a chart shows several, the seconds where it shows minutes. */
function timeText(at: number, span: number): string {
  return new Date(at * 1000).toLocaleString(locale(), {
    ...(span > 2 * DAY && { month: "numeric", day: "numeric" }),
    ...(span <= 20 * DAY && { hour: "2-digit", minute: "2-digit", hour12: false }),
    ...(span < 600 && { second: "2-digit" }),
  });
}

function drawMarks(u: uPlot, marks: TimeMark[], color: string, bad: string): void {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  ctx.textAlign = "left";
  ctx.font = `${10 * devicePixelRatio}px sans-serif`;
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const mark of marks) {
    const x = Math.round(u.valToPos(mark.at, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = mark.bad ? bad : color;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText(mark.label, x + 3 * devicePixelRatio, bbox.top + 9 * devicePixelRatio);
  }
  ctx.restore();
}

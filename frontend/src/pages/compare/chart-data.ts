import type { RunBand, RunCurve } from "@/api/compare";

export interface Line {
  key: string;
  label: string;
  x: number[];
  y: number[];
  /** The lowest and highest values around the line, if they are shaded. */
  low?: number[] | null;
  high?: number[] | null;
  /** A CSS custom property such as `--curve-1`. */
  color: string;
  dash: number[];
  /** Drawn thinner and lighter: what a smoothed line was made from. */
  faint?: boolean;
}

export interface RunStyle {
  label: string;
  color: number;
  dash: number[];
}

const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
const COLORS = 7;

/** Returns the colour and dashes of the run at a place in the list: each seven runs have dashes of their own. */
export function chooseStyle(index: number, label: string, color?: number): RunStyle {
  return { label, color: color ?? index % COLORS, dash: DASHES[Math.floor(index / COLORS) % DASHES.length] ?? [] };
}

export const getColorName = (color: number) => `--curve-${color + 1}`;

/** Returns what is drawn of curves: each as a line, and smoothed with its own points behind it. */
export function buildLines(
  curves: RunCurve[],
  styles: Map<string, RunStyle>,
  { smoothing, extremes }: { smoothing: number; extremes: boolean },
): Line[] {
  const lines: Line[] = [];
  for (const curve of curves) {
    const style = styles.get(curve.taskId);
    if (!style || curve.x.length === 0) continue;
    const line: Line = {
      key: curve.taskId,
      label: style.label,
      x: curve.x,
      y: curve.y,
      color: getColorName(style.color),
      dash: style.dash,
      ...(extremes && { low: curve.low, high: curve.high }),
    };
    if (smoothing > 0) {
      lines.push({ ...line, key: `${line.key} faint`, faint: true, low: null, high: null });
      lines.push({ ...line, y: smoothValues(curve.y, smoothing) });
    } else lines.push(line);
  }
  return lines;
}

/** Returns a line with its spread for each group. */
export function buildBandLines(
  bands: RunBand[],
  smoothing: number,
  label: (group: string, runs: number) => string,
): Line[] {
  return bands
    .filter(({ x }) => x.length > 0)
    .map((band, index) => ({
      key: `group ${band.group}`,
      label: label(band.group, band.taskIds.length),
      x: band.x,
      y: smoothing > 0 ? smoothValues(band.mean, smoothing) : band.mean,
      low: band.low,
      high: band.high,
      color: getColorName(index % COLORS),
      dash: DASHES[Math.floor(index / COLORS) % DASHES.length] ?? [],
    }));
}

/** Returns the exponential moving average of values, divided by the sum of its weights: as the platform and the task's
    page smooth. Not imported from that page, which would then be of one file more. */
export function smoothValues(values: number[], weight: number): number[] {
  let sum = 0;
  let weights = 0;
  return values.map((value) => {
    sum = weight * sum + (1 - weight) * value;
    weights = weight * weights + (1 - weight);
    return sum / weights;
  });
}

export type Column = (number | null)[];

/** Returns uPlot's data: all places, then of each line its values there, and those of its lower and upper edge if it has
    a spread. On a logarithmic axis values that are not positive are left out. */
export function alignLines(lines: Line[], log: boolean): { data: [number[], ...Column[]]; edges: [number, number][] } {
  const places = [...new Set(lines.flatMap(({ x }) => x))].sort((a, b) => a - b);
  const index = new Map(places.map((place, at) => [place, at]));
  const columns: Column[] = [];
  const edges: [number, number][] = [];
  const add = (x: number[], values: number[]) => {
    const column: Column = new Array<number | null>(places.length).fill(null);
    x.forEach((place, at) => {
      const value = values[at];
      const to = index.get(place);
      if (value !== undefined && to !== undefined && (!log || value > 0)) column[to] = value;
    });
    columns.push(column);
  };
  for (const { x, y } of lines) add(x, y);
  for (const { x, low, high } of lines) {
    if (!low || !high) continue;
    add(x, high);
    add(x, low);
    edges.push([columns.length - 1, columns.length]);
  }
  return { data: [places, ...columns], edges };
}

/** Returns the value of a column at an index, or else the last one before it; null before its first and after its last. */
export function findValue(column: Column, at: number): number | null {
  let low = at;
  while (low >= 0 && column[low] == null) low--;
  if (low < 0) return null;
  let high = at;
  while (high < column.length && column[high] == null) high++;
  return high < column.length ? (column[low] ?? null) : null;
}

import type { Span, TimelineEnvironment } from "@/api/types";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

/** How much is seen at once, hours. */
export const ZOOMS = [3, 6, 12, 30, 72, 168, 720];
export const USUAL = ZOOMS.indexOf(30);
/** The part of the window before the present, so that 30 hours are the past 6 and the next 24. */
const PAST = 0.2;
/** Moments that are asked for are whole ones of these, so that the same question is asked for a while. */
const GRAIN = 5 * MINUTE;

/** Milliseconds. */
export interface Window {
  from: number;
  to: number;
}

/** `shift`: halves of the window, into the future. */
export function windowAt(now: number, zoom: number, shift: number): Window {
  const length = (ZOOMS[zoom] ?? 30) * HOUR;
  const from = Math.floor((now - PAST * length + (shift * length) / 2) / GRAIN) * GRAIN;
  return { from, to: from + length };
}

const STEPS = [0.25, 0.5, 1, 2, 3, 6, 12, 24, 48, 120, 240].map((hours) => hours * HOUR);
const MOST_TICKS = 10;

/** Round moments of the reader's clock, at most ten. */
export function ticksOf({ from, to }: Window): number[] {
  const step = STEPS.find((each) => (to - from) / each <= MOST_TICKS) ?? to - from;
  const midnight = new Date(from).setHours(0, 0, 0, 0);
  const first = midnight + Math.ceil((from - midnight) / step) * step;
  return Array.from({ length: Math.ceil((to - first) / step) }, (_, index) => first + index * step);
}

/** Percent of the window. */
export function placeOf(at: number, { from, to }: Window): number {
  return ((at - from) / (to - from)) * 100;
}

/** Percent of the window for what begins nobody knows when. */
const SOMEDAY = 10;

/** The part of a span that is in the window; a span without an end goes on. */
export function placed(span: Span, window: Window): { left: number; width: number } | undefined {
  if (span.from === null) return { left: 100 - SOMEDAY, width: SOMEDAY };
  const from = Math.max(new Date(span.from).getTime(), window.from);
  const to = span.to === null ? window.to : Math.min(new Date(span.to).getTime(), window.to);
  if (to <= from) return undefined;
  const left = placeOf(from, window);
  return { left, width: placeOf(to, window) - left };
}

export type Row = { zone: string; count: number } | { environment: TimelineEnvironment };

/** By name. */
export function zonesOf(environments: TimelineEnvironment[]): string[] {
  return [...new Set(environments.map(({ zone }) => zone))].sort((a, b) => a.localeCompare(b));
}

/** Each zone, followed by its environments. */
export function rowsOf(environments: TimelineEnvironment[]): Row[] {
  return zonesOf(environments).flatMap((zone): Row[] => {
    const inside = environments.filter((each) => each.zone === zone);
    return [{ zone, count: inside.length }, ...inside.map((environment) => ({ environment }))];
  });
}

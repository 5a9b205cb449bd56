import type { Span, TimelineEnvironment } from "@/api/types";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

/** Hours in view. */
export const ZOOM_HOURS = [3, 6, 12, 30, 72, 168, 720];
export const DEFAULT_ZOOM_HOURS = ZOOM_HOURS.indexOf(30);
/** The share of the window before now: 30 hours are the past 6 and the next 24. */
const PAST = 0.2;
/** Requested times are rounded to this, so that the query's key stays for a while. */
const GRAIN_MS = 5 * MINUTE;

/** Unix milliseconds. */
export interface Window {
  from: number;
  to: number;
}

/** Returns the window; `shift` moves it by halves into the future. */
export function computeWindow(now: number, zoom: number, shift: number): Window {
  const length = (ZOOM_HOURS[zoom] ?? 30) * HOUR;
  const from = Math.floor((now - PAST * length + (shift * length) / 2) / GRAIN_MS) * GRAIN_MS;
  return { from, to: from + length };
}

const STEPS = [0.25, 0.5, 1, 2, 3, 6, 12, 24, 48, 120, 240].map((hours) => hours * HOUR);
const MAX_TICKS = 10;

/** Returns at most ten round local times. */
export function computeTicks({ from, to }: Window): number[] {
  const step = STEPS.find((each) => (to - from) / each <= MAX_TICKS) ?? to - from;
  const midnight = new Date(from).setHours(0, 0, 0, 0);
  const first = midnight + Math.ceil((from - midnight) / step) * step;
  return Array.from({ length: Math.ceil((to - first) / step) }, (_, index) => first + index * step);
}

/** Returns a position in percent of the window. */
export function computePosition(at: number, { from, to }: Window): number {
  return ((at - from) / (to - from)) * 100;
}

/** Width in percent of a span with an unknown start. */
const UNKNOWN_START_WIDTH = 10;

/** Returns the visible part of a span; one without an end continues. */
export function positionSpan(span: Span, window: Window): { left: number; width: number } | undefined {
  if (span.from === null) return { left: 100 - UNKNOWN_START_WIDTH, width: UNKNOWN_START_WIDTH };
  const from = Math.max(new Date(span.from).getTime(), window.from);
  const to = span.to === null ? window.to : Math.min(new Date(span.to).getTime(), window.to);
  if (to <= from) return undefined;
  const left = computePosition(from, window);
  return { left, width: computePosition(to, window) - left };
}

export type Row = { zone: string; count: number } | { environment: TimelineEnvironment };

/** Returns the zones, sorted by name. */
export function listZones(environments: TimelineEnvironment[]): string[] {
  return [...new Set(environments.map(({ zone }) => zone))].sort((a, b) => a.localeCompare(b));
}

/** Returns each zone followed by its environments. */
export function buildRows(environments: TimelineEnvironment[]): Row[] {
  return listZones(environments).flatMap((zone): Row[] => {
    const inside = environments.filter((each) => each.zone === zone);
    return [{ zone, count: inside.length }, ...inside.map((environment) => ({ environment }))];
  });
}

/** How the moments of a schedule are written. */
import { getLocale } from "@/i18n";

const MOMENT: Intl.DateTimeFormatOptions = {
  weekday: "short",
  year: "numeric",
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  hour12: false,
};

/** Returns a moment in a time zone, with the zone's offset; in UTC where the browser does not know the zone. */
export function formatMoment(iso: string, zone: string): string {
  const at = new Date(iso);
  const timeZone = isKnownZone(zone) ? zone : "UTC";
  const parts = new Intl.DateTimeFormat(getLocale(), { timeZone, timeZoneName: "short" }).formatToParts(at);
  const offset = parts.find(({ type }) => type === "timeZoneName")?.value ?? "";
  return `${at.toLocaleString(getLocale(), { ...MOMENT, timeZone })} ${offset}`;
}

function isKnownZone(timeZone: string): boolean {
  try {
    new Intl.DateTimeFormat(undefined, { timeZone });
    return true;
  } catch {
    return false;
  }
}

/** Returns the time zones that the browser knows. */
export function listZones(): string[] {
  return ["UTC", ...Intl.supportedValuesOf("timeZone")];
}

export const getOwnZone = (): string => Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Common expressions, with the key of their text. */
export const COMMON_CRONS = [
  ["0 * * * *", "hourly"],
  ["0 2 * * *", "daily"],
  ["0 2 * * 1-5", "weekdays"],
  ["0 2 * * 1", "weekly"],
  ["0 2 1 * *", "monthly"],
] as const;

export const MISSED = ["last", "skip", "all"] as const;
export const OVERLAPS = ["skip", "allow", "queue", "stop-older"] as const;

import type { TFunction } from "i18next";
import { getLocale } from "@/i18n";

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Formats the two largest units: "5天3小时", "3m 20s". */
export function formatDuration(t: TFunction, seconds: number): string {
  const full = Math.max(0, Math.floor(seconds));
  const parts = [
    { unit: "day", count: Math.floor(full / DAY) },
    { unit: "hour", count: Math.floor((full % DAY) / HOUR) },
    { unit: "minute", count: Math.floor((full % HOUR) / MINUTE) },
    { unit: "second", count: full % MINUTE },
  ] as const;
  const first = parts.findIndex((part) => part.count > 0);
  if (first === -1) return t("unit.second", { count: 0 });
  return parts
    .slice(first, first + 2)
    .filter((part) => part.count > 0)
    .map((part) => t(`unit.${part.unit}`, { count: part.count }))
    .join(t("unit.joiner"));
}

/** Returns the time until an estimated end, in whole minutes; undefined if there is none, or it has passed. */
export function formatTimeLeft(t: TFunction, end: string | null, now: number): string | undefined {
  const seconds = end === null ? 0 : (new Date(end).getTime() - now) / 1000;
  if (!(seconds > 0)) return undefined;
  return formatDuration(t, seconds < MINUTE ? Math.ceil(seconds) : Math.round(seconds / MINUTE) * MINUTE);
}

/** Formats GPU time in a readable unit: 12.5 GPU-hours, 7 GPU-minutes, 35 GPU-seconds. */
export function formatGpuTime(t: TFunction, hours: number): string {
  const seconds = hours * HOUR;
  const [unit, value] =
    hours === 0 || seconds >= HOUR
      ? (["gpuHours", hours] as const)
      : seconds >= MINUTE
        ? (["gpuMinutes", Math.round(seconds / MINUTE)] as const)
        : (["gpuSeconds", Math.max(1, Math.round(seconds))] as const);
  const amount = formatMeasurement(value);
  return t(`counted.${unit}`, { amount, count: Number(amount === "1") });
}

/** Formats the size of a task: "2 nodes · 16 ranks". */
export function formatTaskScale(t: TFunction, nodes: number, ranks: number): string {
  return `${t("counted.nodes", { count: nodes })} · ${t("counted.ranks", { count: ranks })}`;
}

export function getSecondsBetween(from: string, to: string | number): number {
  return (new Date(to).getTime() - new Date(from).getTime()) / 1000;
}

export function formatDateTime(iso: string): string {
  return new Date(iso).toLocaleString(getLocale(), { dateStyle: "medium", timeStyle: "medium" });
}

export function formatTime(iso: string): string {
  return new Date(iso).toLocaleTimeString(getLocale(), { hour12: false });
}

/** Formats a time: 14:30 today, with the date on another day. */
export function formatShortTime(iso: string, now = new Date()): string {
  const at = new Date(iso);
  const today = at.toDateString() === now.toDateString();
  return at.toLocaleString(getLocale(), {
    ...(!today && { month: "short", day: "numeric" }),
    hour: "2-digit",
    minute: "2-digit",
    hour12: false,
  });
}

export function formatAge(iso: string, now: number): string {
  const seconds = (now - new Date(iso).getTime()) / 1000;
  const format = new Intl.RelativeTimeFormat(getLocale(), { numeric: "auto" });
  if (seconds < MINUTE) return format.format(0, "second");
  if (seconds < HOUR) return format.format(-Math.floor(seconds / MINUTE), "minute");
  if (seconds < DAY) return format.format(-Math.floor(seconds / HOUR), "hour");
  return format.format(-Math.floor(seconds / DAY), "day");
}

export function formatInteger(value: number): string {
  return value.toLocaleString(getLocale());
}

/**
 * Formats a number of parameters or tokens: 137K, 1.3B, 175B. This and `formatBytes` follow
 * platform/fermi/schema/humanize.py; tests/shared/figures.json tests both.
 */
export function formatCount(value: number): string {
  return formatInUnits(value, 1000, ["", "K", "M", "B", "T"]);
}

/** Formats a number with few digits: 2.3145, 51,234, 0.00343, 1.24e-5. */
export function formatNumber(value: number): string {
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-3) return Number(value.toPrecision(3)).toExponential();
  if (size < 1) return value.toLocaleString(getLocale(), { maximumSignificantDigits: 4 });
  return value.toLocaleString(getLocale(), { maximumFractionDigits: size < 100 ? 4 : 0 });
}

/** Formats a measurement with three digits. */
export function formatMeasurement(value: number): string {
  return value.toLocaleString(getLocale(), { maximumSignificantDigits: 3 });
}

export function formatMoney(value: number, currency: string): string {
  return value.toLocaleString(getLocale(), { style: "currency", currency });
}

export function formatBytes(value: number): string {
  return formatInUnits(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]);
}

/** Formats a value in the first unit in which its three digits are below the next unit. */
function formatInUnits(value: number, base: number, units: string[]): string {
  const texts = units.map((unit, power) => {
    const scaled = value / base ** power;
    return { rounded: scaled < 100 ? Number(scaled.toPrecision(3)) : Math.round(scaled), unit };
  });
  const { rounded, unit } = texts.find(({ rounded }) => rounded < base) ?? texts.at(-1) ?? { rounded: value, unit: "" };
  return `${rounded}${unit}`;
}

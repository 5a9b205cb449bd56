import type { TFunction } from "i18next";
import { getLocale } from "@/i18n";

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** The two largest units that say something: "5天3小时", "3m 20s". */
export function formatDuration(t: TFunction, seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const parts = [
    { unit: "day", count: Math.floor(whole / DAY) },
    { unit: "hour", count: Math.floor((whole % DAY) / HOUR) },
    { unit: "minute", count: Math.floor((whole % HOUR) / MINUTE) },
    { unit: "second", count: whole % MINUTE },
  ] as const;
  const first = parts.findIndex((part) => part.count > 0);
  if (first === -1) return t("unit.second", { count: 0 });
  return parts
    .slice(first, first + 2)
    .filter((part) => part.count > 0)
    .map((part) => t(`unit.${part.unit}`, { count: part.count }))
    .join(t("unit.joiner"));
}

/** GPU time in a unit that can be read: 12.5 GPU-hours, 7 GPU-minutes and 35 GPU-seconds, where hours would be 0.00972. */
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

/** How large a task is: "2 nodes · 16 ranks". */
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

/** 14:30 today, with its day on any other. */
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
 * 137K, 1.3B, 175B: how many parameters or tokens. This and `bytes` are the rules of platform/fermi/schema/humanize.py;
 * tests/shared/figures.json holds both to the same texts.
 */
export function formatCount(value: number): string {
  return formatInUnits(value, 1000, ["", "K", "M", "B", "T"]);
}

/** Few digits, whatever the size: 2.3145, 51,234, 1.2e-5. */
export function formatNumber(value: number): string {
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-3) return value.toExponential(1);
  return value.toLocaleString(getLocale(), { maximumFractionDigits: size < 100 ? 4 : 0 });
}

/** What was measured: three digits say enough. */
export function formatMeasurement(value: number): string {
  return value.toLocaleString(getLocale(), { maximumSignificantDigits: 3 });
}

export function formatMoney(value: number, currency: string): string {
  return value.toLocaleString(getLocale(), { style: "currency", currency });
}

export function formatBytes(value: number): string {
  return formatInUnits(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]);
}

/** The first unit in which the value, in three digits, is below the next one. */
function formatInUnits(value: number, base: number, units: string[]): string {
  const texts = units.map((unit, power) => {
    const scaled = value / base ** power;
    return { rounded: scaled < 100 ? Number(scaled.toPrecision(3)) : Math.round(scaled), unit };
  });
  const { rounded, unit } = texts.find(({ rounded }) => rounded < base) ?? texts.at(-1) ?? { rounded: value, unit: "" };
  return `${rounded}${unit}`;
}

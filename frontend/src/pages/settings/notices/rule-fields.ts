import type { NoticeRuleChange } from "@/api/types";

const HOUR = 60;

/** Formats minutes of the day for a time field: 1350 is "22:30". */
export function formatTimeOfDay(minutes: number | null): string {
  if (minutes === null) return "";
  const two = (value: number) => String(value).padStart(2, "0");
  return `${two(Math.floor(minutes / HOUR))}:${two(minutes % HOUR)}`;
}

export function parseTimeOfDay(text: string | undefined): number | null {
  if (!text) return null;
  const [hours = 0, minutes = 0] = text.split(":").map(Number);
  return hours * HOUR + minutes;
}

const parseOptionalNumber = (text: string | undefined) => (text ? Number(text) : null);

/** Returns the part of a rule that the form's text fields hold. */
export function buildConditions(texts: Record<string, string>) {
  const minutes = parseOptionalNumber(texts.waitsSeconds);
  return {
    name: texts.name ?? "",
    level: texts.level as NonNullable<NoticeRuleChange["level"]>,
    restarts: parseOptionalNumber(texts.restarts),
    waitsSeconds: minutes === null ? null : minutes * 60,
    quietFrom: parseTimeOfDay(texts.quietFrom),
    quietTo: parseTimeOfDay(texts.quietTo),
    timezone: texts.timezone ?? "",
    breaksThrough: texts.breaksThrough as NonNullable<NoticeRuleChange["breaksThrough"]>,
    enabled: texts.enabled === "on",
  };
}

import type { NoticeRuleChange } from "@/api/types";

const HOUR = 60;

/** Minutes of the day as a time field has them: 1350 is "22:30". */
export function timeText(minutes: number | null): string {
  if (minutes === null) return "";
  const two = (value: number) => String(value).padStart(2, "0");
  return `${two(Math.floor(minutes / HOUR))}:${two(minutes % HOUR)}`;
}

export function minutesOf(text: string | undefined): number | null {
  if (!text) return null;
  const [hours = 0, minutes = 0] = text.split(":").map(Number);
  return hours * HOUR + minutes;
}

const numberOf = (text: string | undefined) => (text ? Number(text) : null);

/** What the texts of the form ask for; what is ticked is not among them. */
export function conditionsOf(texts: Record<string, string>) {
  const minutes = numberOf(texts.waitsSeconds);
  return {
    name: texts.name ?? "",
    level: texts.level as NonNullable<NoticeRuleChange["level"]>,
    restarts: numberOf(texts.restarts),
    waitsSeconds: minutes === null ? null : minutes * 60,
    quietFrom: minutesOf(texts.quietFrom),
    quietTo: minutesOf(texts.quietTo),
    timezone: texts.timezone ?? "",
    breaksThrough: texts.breaksThrough as NonNullable<NoticeRuleChange["breaksThrough"]>,
    enabled: texts.enabled === "on",
  };
}

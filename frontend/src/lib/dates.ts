export type CalendarView = "month" | "week";

/** Returns midnight in the browser's time zone. */
export function startOfDay(at: Date): Date {
  return new Date(at.getFullYear(), at.getMonth(), at.getDate());
}

/** Adds days, which may have 23 or 25 hours. */
export function addDays(day: Date, days: number): Date {
  return new Date(day.getFullYear(), day.getMonth(), day.getDate() + days);
}

export function addMonths(day: Date, months: number): Date {
  return new Date(day.getFullYear(), day.getMonth() + months, 1);
}

function startOfWeek(day: Date): Date {
  return addDays(day, -((day.getDay() + 6) % 7));
}

/** Returns whole weeks from Monday: one, or those that overlap the month. */
export function listWeeks(anchor: Date, view: CalendarView): Date[][] {
  const first = startOfWeek(view === "week" ? anchor : addMonths(anchor, 0));
  const last = view === "week" ? first : addDays(addMonths(anchor, 1), -1);
  const weeks: Date[][] = [];
  for (let day = first; day <= last; day = addDays(day, 7))
    weeks.push(Array.from({ length: 7 }, (_, index) => addDays(day, index)));
  return weeks;
}

interface Interval {
  beginsAt: string;
  endsAt: string;
}

export function overlapsDay({ beginsAt, endsAt }: Interval, day: Date): boolean {
  return new Date(beginsAt) < addDays(day, 1) && new Date(endsAt) > day;
}

const padTwoDigits = (number: number) => String(number).padStart(2, "0");

/** Formats a date as addresses and date fields do: 2026-11-23. */
export function formatDateInput(day: Date): string {
  return `${day.getFullYear()}-${padTwoDigits(day.getMonth() + 1)}-${padTwoDigits(day.getDate())}`;
}

/** Parses a date of an address; today if it has none. */
export function parseDateInput(text: string | undefined, today: Date): Date {
  const [year, month, day] =
    /^(\d{4})-(\d\d)-(\d\d)$/
      .exec(text ?? "")
      ?.slice(1)
      .map(Number) ?? [];
  return year && month && day ? new Date(year, month - 1, day) : startOfDay(today);
}

/** Formats a date and time as its field does: 2026-11-23T14:30. */
export function formatDateTimeInput(at: Date): string {
  return `${formatDateInput(at)}T${padTwoDigits(at.getHours())}:${padTwoDigits(at.getMinutes())}`;
}

/**
 * Parses the text of a date and time field. Invalid text is returned unchanged, so that the platform says what is
 * wrong.
 */
export function parseDateTimeInput(text: string): string {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? text : at.toISOString();
}

export type CalendarView = "month" | "week";

/** Midnight, by the reader's clock. */
export function startOfDay(at: Date): Date {
  return new Date(at.getFullYear(), at.getMonth(), at.getDate());
}

/** Not by hours: a day may have 23 or 25. */
export function addDays(day: Date, days: number): Date {
  return new Date(day.getFullYear(), day.getMonth(), day.getDate() + days);
}

export function addMonths(day: Date, months: number): Date {
  return new Date(day.getFullYear(), day.getMonth() + months, 1);
}

function startOfWeek(day: Date): Date {
  return addDays(day, -((day.getDay() + 6) % 7));
}

/** Whole weeks from Monday on: one, or those that the month touches. */
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

/** 2026-11-23, as the address and date fields write it. */
export function formatDateInput(day: Date): string {
  return `${day.getFullYear()}-${padTwoDigits(day.getMonth() + 1)}-${padTwoDigits(day.getDate())}`;
}

/** Of an address; today where it names no day. */
export function parseDateInput(text: string | undefined, today: Date): Date {
  const [year, month, day] =
    /^(\d{4})-(\d\d)-(\d\d)$/
      .exec(text ?? "")
      ?.slice(1)
      .map(Number) ?? [];
  return year && month && day ? new Date(year, month - 1, day) : startOfDay(today);
}

/** 2026-11-23T14:30, as a field for date and time writes it. */
export function formatDateTimeInput(at: Date): string {
  return `${formatDateInput(at)}T${padTwoDigits(at.getHours())}:${padTwoDigits(at.getMinutes())}`;
}

/** What cannot be read stays as it was typed, so that the platform says what is wrong with it. */
export function parseDateTimeInput(text: string): string {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? text : at.toISOString();
}

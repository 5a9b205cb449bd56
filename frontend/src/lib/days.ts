export type View = "month" | "week";

/** Midnight, by the reader's clock. */
export function dayOf(at: Date): Date {
  return new Date(at.getFullYear(), at.getMonth(), at.getDate());
}

/** Not by hours: a day may have 23 or 25. */
export function plusDays(day: Date, days: number): Date {
  return new Date(day.getFullYear(), day.getMonth(), day.getDate() + days);
}

export function plusMonths(day: Date, months: number): Date {
  return new Date(day.getFullYear(), day.getMonth() + months, 1);
}

function monday(day: Date): Date {
  return plusDays(day, -((day.getDay() + 6) % 7));
}

/** Whole weeks from Monday on: one, or those that the month touches. */
export function weeksOf(anchor: Date, view: View): Date[][] {
  const first = monday(view === "week" ? anchor : plusMonths(anchor, 0));
  const last = view === "week" ? first : plusDays(plusMonths(anchor, 1), -1);
  const weeks: Date[][] = [];
  for (let day = first; day <= last; day = plusDays(day, 7))
    weeks.push(Array.from({ length: 7 }, (_, index) => plusDays(day, index)));
  return weeks;
}

interface Between {
  beginsAt: string;
  endsAt: string;
}

export function touches({ beginsAt, endsAt }: Between, day: Date): boolean {
  return new Date(beginsAt) < plusDays(day, 1) && new Date(endsAt) > day;
}

const two = (number: number) => String(number).padStart(2, "0");

/** 2026-11-23, as the address and date fields write it. */
export function dateText(day: Date): string {
  return `${day.getFullYear()}-${two(day.getMonth() + 1)}-${two(day.getDate())}`;
}

/** Of an address; today where it names no day. */
export function dayFrom(text: string | undefined, today: Date): Date {
  const [year, month, day] =
    /^(\d{4})-(\d\d)-(\d\d)$/
      .exec(text ?? "")
      ?.slice(1)
      .map(Number) ?? [];
  return year && month && day ? new Date(year, month - 1, day) : dayOf(today);
}

/** 2026-11-23T14:30, as a field for date and time writes it. */
export function localText(at: Date): string {
  return `${dateText(at)}T${two(at.getHours())}:${two(at.getMinutes())}`;
}

/** What cannot be read stays as it was typed, so that the platform says what is wrong with it. */
export function isoFrom(text: string): string {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? text : at.toISOString();
}

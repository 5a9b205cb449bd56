import { Bookmark, Plus, Wrench } from "lucide-react";
import { useTranslation } from "react-i18next";
import type { Reservation } from "@/api/types";
import { getLocale } from "@/i18n";
import { cx } from "@/lib/cx";
import { formatShortTime } from "@/lib/format";
import { formatDateInput, startOfDay, addDays, overlapsDay, type CalendarView, listWeeks } from "@/lib/dates";
import { ReservationForm } from "./form";

/** Entries shown per day of a month. */
const IN_MONTH = 3;

interface CalendarProps {
  reservations: Reservation[];
  anchor: Date;
  view: CalendarView;
  mayCreate: boolean;
}

export function Calendar({ reservations, anchor, view, mayCreate }: CalendarProps) {
  const { t } = useTranslation();
  const weeks = listWeeks(anchor, view);
  const today = startOfDay(new Date()).getTime();
  const room = view === "month" ? IN_MONTH : Infinity;
  return (
    <div className="overflow-hidden rounded-xl border bg-surface shadow-xs">
      <table aria-label={t("reservations.calendar")} className="w-full table-fixed text-sm">
        <thead className="border-b bg-sunken text-muted">
          <tr>
            {weeks[0]?.map((day) => (
              <th key={day.getDay()} scope="col" className="px-1 py-2 text-center font-medium">
                {day.toLocaleDateString(getLocale(), { weekday: "short" })}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {weeks.map((week) => (
            <tr key={formatDateInput(week[0] ?? anchor)} className="border-b last:border-b-0">
              {week.map((day) => {
                const own = reservations.filter((each) => overlapsDay(each, day));
                const other = view === "month" && day.getMonth() !== anchor.getMonth();
                return (
                  <td
                    key={formatDateInput(day)}
                    aria-current={day.getTime() === today ? "date" : undefined}
                    className={cx(
                      "group border-r p-1 align-top last:border-r-0",
                      view === "month" ? "h-24" : "h-72",
                      other && "bg-sunken/50",
                    )}
                  >
                    <div className="mb-1 flex items-center justify-between">
                      <time
                        dateTime={formatDateInput(day)}
                        className={cx(
                          "inline-flex size-6 items-center justify-center rounded-full text-xs tabular-nums",
                          other && "text-muted",
                          day.getTime() === today && "bg-accent font-semibold text-white",
                        )}
                      >
                        {day.getDate()}
                      </time>
                      {mayCreate && (
                        <ReservationForm
                          from={day}
                          to={addDays(day, 1)}
                          trigger={
                            <button
                              type="button"
                              aria-label={t("reservations.createOn", { day: day.toLocaleDateString(getLocale()) })}
                              className="hidden size-6 items-center justify-center rounded text-muted opacity-0 group-hover:opacity-100 hover:bg-sunken focus-visible:opacity-100 sm:flex [&>svg]:size-4"
                            >
                              <Plus />
                            </button>
                          }
                        />
                      )}
                    </div>
                    <ul className="space-y-1">
                      {own.slice(0, room).map((each) => (
                        <li key={each.id}>
                          <Chip reservation={each} day={day} />
                        </li>
                      ))}
                      {own.length > room && (
                        <li className="px-1 text-xs text-muted">
                          {t("reservations.moreOnDay", { count: own.length - room })}
                        </li>
                      )}
                    </ul>
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Returns a function that formats whom a reservation is for. */
export function useReservedFor() {
  const { t } = useTranslation();
  return ({ kind, projectName }: Reservation) =>
    kind === "maintenance" ? t("reservations.maintenance") : projectName || t("reservations.otherProject");
}

function Chip({ reservation, day }: { reservation: Reservation; day: Date }) {
  const forWhom = useReservedFor()(reservation);
  const { kind, environments, beginsAt, endsAt, note } = reservation;
  const begins = new Date(beginsAt) >= day;
  return (
    <div
      title={`${forWhom}: ${environments.map(({ name }) => name).join(", ")}\n${formatShortTime(beginsAt)} – ${formatShortTime(endsAt)}\n${note}`}
      className={cx(
        "flex items-center gap-1 rounded border px-1 py-0.5 text-xs [&>svg]:size-3 [&>svg]:shrink-0",
        kind === "maintenance"
          ? "border-warn-line bg-warn-soft text-warn-ink"
          : "border-info-line bg-info-soft text-info-ink",
      )}
    >
      {kind === "maintenance" ? <Wrench aria-hidden /> : <Bookmark aria-hidden />}
      <span className="sr-only truncate sm:not-sr-only">
        {begins &&
          `${new Date(beginsAt).toLocaleTimeString(getLocale(), { hour: "2-digit", minute: "2-digit", hour12: false })} `}
        {note || forWhom} ({environments.length})
      </span>
    </div>
  );
}

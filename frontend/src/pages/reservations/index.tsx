import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { ChevronLeft, ChevronRight, Pencil, Plus, Trash2 } from "lucide-react";
import { useTranslation } from "react-i18next";
import { toast } from "@/ui/toast";
import { deleteReservation, invalidateReservations, reservationsQuery } from "@/api/reservations";
import type { Reservation } from "@/api/types";
import { isMaintainer, meQuery } from "@/api/session";
import { getLocale } from "@/i18n";
import { useFilters } from "@/lib/use-filters";
import { formatDateTime } from "@/lib/format";
import { QueueSections } from "@/pages/queue/queue-sections";
import { Badge } from "@/ui/badge";
import { Button } from "@/ui/button";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { FilterSelect } from "@/ui/filters";
import { Page } from "@/ui/page";
import { MEDIUM_COLUMN, ROW, Table } from "@/ui/table";
import { TextLink } from "@/ui/text-link";
import { Calendar, useReservedFor } from "./calendar";
import { formatDateInput, parseDateInput, addDays, addMonths, type CalendarView, listWeeks } from "@/lib/dates";
import { ReservationForm } from "./form";

const FILTERS = ["project", "view", "day"] as const;
const HOUR = 3_600_000;
/** Number of environments to name; the others are counted. */
const MAX_NAMED = 4;

export function Component() {
  const { t } = useTranslation();
  const { filters, set, of } = useFilters(FILTERS);
  const view: CalendarView = filters.view === "week" ? "week" : "month";
  const anchor = parseDateInput(filters.day, new Date());
  const days = listWeeks(anchor, view).flat();
  const from = days[0] ?? anchor;
  const to = addDays(days.at(-1) ?? anchor, 1);
  const request = { from: from.toISOString(), to: to.toISOString() };
  const found = useQuery(reservationsQuery({ ...request, ...(filters.project && { project: filters.project }) }));
  const me = useQuery(meQuery).data;
  const projects = me?.projects ?? [];
  const mayCreate = me !== undefined && (me.isAdministrator || projects.some(({ id }) => isMaintainer(me, id)));
  const go = (by: number) =>
    set("day", formatDateInput(view === "week" ? addDays(anchor, 7 * by) : addMonths(anchor, by)));
  const reservations = found.data ?? [];
  const create = mayCreate && <Create />;
  return (
    <Page title={t("app.reservations")} actions={create}>
      <QueueSections />
      <div className="mb-3 flex flex-wrap items-center gap-2">
        <FilterSelect
          label={t("queue.project")}
          any={t("queue.allProjects")}
          options={projects.map(({ id, name }) => [id, name])}
          {...of("project")}
        />
        <div role="group" aria-label={t("timeline.range")} className="flex flex-wrap items-center gap-1 md:ml-auto">
          <span className="px-2 font-medium" aria-live="polite">
            {anchor.toLocaleDateString(getLocale(), { year: "numeric", month: "long" })}
          </span>
          <Button size="icon" aria-label={t("timeline.earlier")} onClick={() => go(-1)}>
            <ChevronLeft />
          </Button>
          <Button onClick={() => set("day", "")}>{t("reservations.today")}</Button>
          <Button size="icon" aria-label={t("timeline.later")} onClick={() => go(1)}>
            <ChevronRight />
          </Button>
          <select
            aria-label={t("reservations.view")}
            className="control w-auto"
            value={view}
            onChange={({ target }) => set("view", target.value === "week" ? "week" : "")}
          >
            <option value="month">{t("reservations.month")}</option>
            <option value="week">{t("reservations.week")}</option>
          </select>
        </div>
      </div>
      {found.isError && <LoadError error={found.error} retry={() => void found.refetch()} />}
      {found.isPending && <Loading />}
      {found.data && (
        <div className="space-y-4">
          <Calendar reservations={reservations} anchor={anchor} view={view} mayCreate={mayCreate} />
          {reservations.length > 0 ? (
            <List reservations={reservations} />
          ) : (
            <section className="rounded-xl border bg-surface shadow-xs">
              <EmptyState title={t("reservations.empty")} hint={t("reservations.emptyHint")}>
                {create}
              </EmptyState>
            </section>
          )}
        </div>
      )}
    </Page>
  );
}

/** A new reservation: two hours from the next full hour. */
function Create() {
  const { t } = useTranslation();
  const hour = new Date(Math.ceil(new Date().getTime() / HOUR) * HOUR);
  return (
    <ReservationForm
      from={hour}
      to={new Date(hour.getTime() + 2 * HOUR)}
      trigger={
        <Button look="primary">
          <Plus />
          {t("reservations.create")}
        </Button>
      }
    />
  );
}

function List({ reservations }: { reservations: Reservation[] }) {
  const { t } = useTranslation();
  const nameOf = useReservedFor();
  return (
    <Table
      label={t("app.reservations")}
      columns={[
        { label: t("reservations.for") },
        { label: t("timeline.from") },
        { label: t("timeline.to") },
        { label: t("reservations.environments"), className: MEDIUM_COLUMN },
        { label: t("reservations.note"), className: MEDIUM_COLUMN },
        { label: <span className="sr-only">{t("reservations.change")}</span> },
      ]}
    >
      {reservations.map((each) => {
        const { id, kind, environments, note } = each;
        const rest = environments.length - MAX_NAMED;
        return (
          <tr key={id} className={ROW}>
            <td>
              <Badge tone={kind === "maintenance" ? "warn" : "info"}>{nameOf(each)}</Badge>
              <div className="mt-1 text-xs text-muted md:hidden">
                {environments.map(({ name }) => name).join(t("queue.comma"))}
                {note && <div>{note}</div>}
              </div>
            </td>
            <td className="whitespace-nowrap tabular-nums">{formatDateTime(each.beginsAt)}</td>
            <td className="whitespace-nowrap tabular-nums">{formatDateTime(each.endsAt)}</td>
            <td className={MEDIUM_COLUMN}>
              {environments.slice(0, MAX_NAMED).map((environment, index) => (
                <span key={environment.id}>
                  {index > 0 && t("queue.comma")}
                  <TextLink to={`/environments/${environment.id}`}>{environment.name}</TextLink>
                </span>
              ))}
              {rest > 0 && t("queue.afterMore", { count: rest })}
            </td>
            <td className={`${MEDIUM_COLUMN} break-words`}>{note || "–"}</td>
            <td className="w-px">{each.mayChange && <Change reservation={each} name={note || nameOf(each)} />}</td>
          </tr>
        );
      })}
    </Table>
  );
}

function Change({ reservation, name }: { reservation: Reservation; name: string }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const remove = useMutation({
    mutationFn: () => deleteReservation(reservation.id),
    onError: (error) => toastError(t, error),
    onSuccess: () => toast.success(t("reservations.deleted")),
    onSettled: () => invalidateReservations(client),
  });
  return (
    <span className="flex justify-end">
      <ReservationForm
        reservation={reservation}
        from={new Date(reservation.beginsAt)}
        to={new Date(reservation.endsAt)}
        trigger={
          <Button look="ghost" size="icon" aria-label={t("reservations.changeOf", { name })}>
            <Pencil />
          </Button>
        }
      />
      <ConfirmDialog
        danger
        title={t("reservations.deleteTitle", { name })}
        description={t("reservations.deleteHint")}
        action={t("reservations.delete")}
        onConfirm={() => remove.mutate()}
        trigger={
          <Button
            look="ghost"
            size="icon"
            aria-label={t("reservations.deleteOf", { name })}
            disabled={remove.isPending}
          >
            <Trash2 />
          </Button>
        }
      />
    </span>
  );
}

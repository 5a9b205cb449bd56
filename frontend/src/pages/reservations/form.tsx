import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { useTranslation } from "react-i18next";
import { toast } from "@/ui/toast";
import { environmentsQuery } from "@/api/inventory";
import { updateReservation, createReservation, invalidateReservations } from "@/api/reservations";
import type { Reservation } from "@/api/types";
import { isMaintainer, meQuery } from "@/api/session";
import { Field } from "@/ui/field";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { parseDateTimeInput, formatDateTimeInput } from "@/lib/dates";

const FIELDS = ["projectId", "environmentIds", "beginsAt", "endsAt", "note"] as const;
/** Environments shown; more are found by searching. */
const MAX_LISTED = 100;

interface ReservationFormProps {
  trigger: ReactNode;
  /** The reservation to change; undefined: a new one. */
  reservation?: Reservation;
  from: Date;
  to: Date;
}

export function ReservationForm({ trigger, reservation, from, to }: ReservationFormProps) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const me = useQuery(meQuery).data;
  const projects = me?.projects.filter(({ id }) => isMaintainer(me, id)) ?? [];
  const save = async (texts: Record<string, string>) => {
    const body = {
      projectId: texts.projectId || null,
      environmentIds: (texts.environmentIds ?? "").split(",").filter(Boolean),
      beginsAt: parseDateTimeInput(texts.beginsAt ?? ""),
      endsAt: parseDateTimeInput(texts.endsAt ?? ""),
      note: texts.note ?? "",
    };
    await (reservation ? updateReservation(reservation.id, body) : createReservation(body));
    toast.success(t("reservations.saved"));
    await invalidateReservations(client);
  };
  return (
    <FormDialog
      wide
      title={t(reservation ? "reservations.change" : "reservations.create")}
      description={t("reservations.formHint")}
      submit={t("app.save")}
      fields={FIELDS}
      onSubmit={save}
      trigger={trigger}
    >
      {(problem) => (
        <>
          <div className="grid items-start gap-4 sm:grid-cols-2">
            <Field label={t("reservations.for")} error={problem("projectId")}>
              {(wiring) => (
                <select
                  {...wiring}
                  name="projectId"
                  className="control"
                  defaultValue={reservation ? (reservation.projectId ?? "") : projects[0]?.id}
                >
                  {projects.map(({ id, name }) => (
                    <option key={id} value={id}>
                      {t("settings.project", { name })}
                    </option>
                  ))}
                  <option value="">{t("reservations.maintenance")}</option>
                </select>
              )}
            </Field>
            <TextField
              name="note"
              label={t("reservations.note")}
              error={problem("note")}
              defaultValue={reservation?.note}
            />
            <DateTimeField name="beginsAt" label={t("timeline.from")} error={problem("beginsAt")} at={from} />
            <DateTimeField name="endsAt" label={t("timeline.to")} error={problem("endsAt")} at={to} />
          </div>
          <Environments
            chosen={reservation?.environments.map(({ id }) => id) ?? []}
            error={problem("environmentIds")}
          />
        </>
      )}
    </FormDialog>
  );
}

function DateTimeField({
  name,
  label,
  error,
  at,
}: {
  name: string;
  label: string;
  error: string | undefined;
  at: Date;
}) {
  return (
    <Field label={label} error={error}>
      {(wiring) => (
        <input
          {...wiring}
          name={name}
          type="datetime-local"
          className="control"
          defaultValue={formatDateTimeInput(at)}
          required
        />
      )}
    </Field>
  );
}

function Environments({ chosen, error }: { chosen: string[]; error: string | undefined }) {
  const { t } = useTranslation();
  const environments = useQuery(environmentsQuery).data ?? [];
  const [ticked, setTicked] = useState(chosen);
  const [search, setSearch] = useState("");
  const text = search.toLowerCase();
  const found = environments.filter(({ id, name, zone, gpuType }) =>
    [id, name, zone.name, gpuType].some((each) => each.toLowerCase().includes(text)),
  );
  const toggle = (id: string) =>
    setTicked(ticked.includes(id) ? ticked.filter((each) => each !== id) : [...ticked, id]);
  return (
    <Field
      label={t("reservations.environments")}
      error={error}
      hint={t("reservations.chosen", { count: ticked.length })}
    >
      {(wiring) => (
        <div className="space-y-2">
          <input
            {...wiring}
            type="search"
            className="control"
            placeholder={t("environments.search")}
            value={search}
            onChange={({ target }) => setSearch(target.value)}
          />
          <input type="hidden" name="environmentIds" value={ticked.join(",")} />
          <ul
            aria-label={t("reservations.environments")}
            className="max-h-52 divide-y overflow-y-auto rounded-lg border"
          >
            {found.slice(0, MAX_LISTED).map(({ id, name, zone, gpuCount, gpuType }) => (
              <li key={id}>
                <label className="flex items-center gap-2 px-3 py-1.5 text-sm">
                  <input type="checkbox" checked={ticked.includes(id)} onChange={() => toggle(id)} />
                  <span className="min-w-0 flex-1 truncate">{name}</span>
                  <span className="text-xs whitespace-nowrap text-muted">
                    {zone.name} · {gpuCount ? `${gpuCount}x ${gpuType}` : t("gpu.none")}
                  </span>
                </label>
              </li>
            ))}
            {found.length > MAX_LISTED && (
              <li className="px-3 py-1.5 text-sm text-muted">
                {t("reservations.more", { count: found.length - MAX_LISTED })}
              </li>
            )}
          </ul>
        </div>
      )}
    </Field>
  );
}

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { endSession, endSessions, peopleKeys, sessionsQuery, setPassword } from "@/api/people";
import { sessionKeys } from "@/api/session";
import type { BrowserSession } from "@/api/types";
import { formatDateTime } from "@/lib/format";
import { Badge } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { Field } from "@/ui/field";
import { FormDialog } from "@/ui/form-dialog";
import { toast } from "@/ui/toast";

/** Where the user is signed in, and the password. */
export function BrowserSessions() {
  const { t } = useTranslation();
  const sessions = useQuery(sessionsQuery);
  return (
    <Card
      title={t("sessions.title")}
      aside={
        <span className="flex flex-wrap gap-2">
          <SetPassword />
          <EndAll />
        </span>
      }
    >
      <p className="text-sm text-muted">{t("sessions.hint")}</p>
      {sessions.isError && <LoadError error={sessions.error} retry={() => void sessions.refetch()} />}
      {sessions.isPending && <Loading />}
      <ul className="mt-2 divide-y text-sm">
        {sessions.data?.items.map((session) => (
          <SessionRow key={session.id} session={session} />
        ))}
      </ul>
      {sessions.data?.items.length === 0 && <p className="py-4 text-center text-sm text-muted">{t("sessions.none")}</p>}
    </Card>
  );
}

function SessionRow({ session }: { session: BrowserSession }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const end = useMutation({
    mutationFn: () => endSession(session.id),
    onError: (error) => toastError(t, error),
    onSettled: () => client.invalidateQueries({ queryKey: peopleKeys.sessions }),
  });
  const facts = [session.address, t("sessions.lastSeen", { time: formatDateTime(session.lastSeenAt) })];
  return (
    <li className="flex flex-wrap items-center gap-x-4 gap-y-1 py-2.5">
      <span className="min-w-0 flex-1 basis-40">
        <span title={session.userAgent} className="break-words">
          {session.device || t("sessions.unknownDevice")}
        </span>
        <span className="block text-muted">{facts.filter(Boolean).join(" · ")}</span>
      </span>
      {session.current ? (
        <Badge tone="info">{t("sessions.current")}</Badge>
      ) : (
        <ConfirmDialog
          danger
          title={t("sessions.endTitle")}
          description={t("sessions.endHint")}
          action={t("sessions.end")}
          onConfirm={() => end.mutate()}
          trigger={
            <Button size="sm" disabled={end.isPending}>
              {t("sessions.end")}
            </Button>
          }
        />
      )}
    </li>
  );
}

function EndAll() {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [tokens, setTokens] = useState(false);
  const end = useMutation({
    mutationFn: () => endSessions(tokens),
    onError: (error) => toastError(t, error),
    onSettled: () => client.invalidateQueries({ queryKey: sessionKeys.me }),
  });
  return (
    <ConfirmDialog
      danger
      title={t("sessions.endAllTitle")}
      description={t("sessions.endAllHint")}
      action={t("sessions.endAll")}
      onConfirm={() => end.mutate()}
      trigger={
        <Button size="sm" disabled={end.isPending}>
          {t("sessions.endAll")}
        </Button>
      }
    >
      <label className="mt-3 flex items-center gap-2 text-sm">
        <input type="checkbox" checked={tokens} onChange={({ target }) => setTokens(target.checked)} />
        {t("sessions.endTokens")}
      </label>
    </ConfirmDialog>
  );
}

function SetPassword() {
  const { t } = useTranslation();
  const client = useQueryClient();
  const save = async ({ current = "", next = "" }: Record<string, string>) => {
    await setPassword(current, next);
    toast.success(t("sessions.passwordSet"));
    await client.invalidateQueries({ queryKey: peopleKeys.sessions });
  };
  return (
    <FormDialog
      title={t("sessions.password")}
      description={t("sessions.passwordHint")}
      submit={t("sessions.password")}
      fields={[]}
      onSubmit={save}
      trigger={<Button size="sm">{t("sessions.password")}</Button>}
    >
      {() => (
        <>
          <Field label={t("sessions.currentPassword")} hint={t("sessions.currentHint")}>
            {(wiring) => (
              <input {...wiring} type="password" name="current" autoComplete="current-password" className="control" />
            )}
          </Field>
          <Field label={t("sessions.newPassword")}>
            {(wiring) => (
              <input {...wiring} type="password" name="next" autoComplete="new-password" className="control" required />
            )}
          </Field>
        </>
      )}
    </FormDialog>
  );
}

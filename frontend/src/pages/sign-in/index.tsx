import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import type { TFunction } from "i18next";
import { type SubmitEvent, useState } from "react";
import { useTranslation } from "react-i18next";
import { useLocation, useNavigate, useSearchParams } from "react-router";
import { ConnectionBanner } from "@/app/connection-banner";
import { LanguageSwitch, ThemeSwitch } from "@/app/preferences";
import { ApiError } from "@/api/errors";
import {
  meQuery,
  pendingCodeQuery,
  sessionKeys,
  signIn,
  signInProvidersQuery,
  signInQuery,
  startSignIn,
} from "@/api/session";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { CopyButton } from "@/ui/copy-button";
import { describeError } from "@/ui/errors";
import { Field } from "@/ui/field";
import { Logo } from "@/ui/logo";
import { Banner } from "./banner";

const WRONG = new Set(["username_password_mismatch", "email_password_mismatch", "invalid_login"]);

/** Pages that Django serves itself. */
const OPERATORS = "/admin/";
/** Opens an environment: the platform answers it, not a page of the console. */
const DOOR = /^\/environments\/[^/]+\/open(\?|$)/;

/** Returns `next` if it is a path of this site: anybody may have written the address. */
export function getSafeNext(next: string | null): string {
  return next?.startsWith("/") && !/^\/[/\\]/.test(next) ? next : "/";
}

export function Component() {
  const { t } = useTranslation();
  const client = useQueryClient();
  const navigate = useNavigate();
  const [params] = useSearchParams();
  const ended = (useLocation().state as { ended?: boolean } | null)?.ended;
  const [passwordFits, setPasswordFits] = useState(false);
  const { data: providerFits = false } = useQuery(pendingCodeQuery);
  const wantsCode = passwordFits || providerFits;
  const { mutate, isPending, error } = useMutation({
    mutationFn: signIn,
    onSuccess: async (outcome) => {
      if (outcome === "code") {
        setPasswordFits(true);
        return;
      }
      client.removeQueries({ queryKey: sessionKeys.ended });
      await client.resetQueries({ queryKey: meQuery.queryKey });
      const next = getSafeNext(params.get("next"));
      if (next.startsWith(OPERATORS) || DOOR.test(next)) location.assign(next);
      else await navigate(next, { replace: true });
    },
  });
  const passwords = useQuery(signInProvidersQuery(params.get("error"))).data?.passwords ?? true;
  const submit = (event: SubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = (name: string) => form.get(name) as string;
    mutate(wantsCode ? { code: text("code") } : { name: text("name"), password: text("password") });
  };
  return (
    <div className="flex min-h-dvh flex-col">
      <title>{`${t("signIn.title")} · Fermi`}</title>
      <ConnectionBanner />
      <header className="flex justify-end gap-1 p-3">
        <LanguageSwitch />
        <ThemeSwitch />
      </header>
      <main className="mx-auto flex w-full max-w-sm flex-1 flex-col justify-center gap-6 px-4 pb-24">
        <div className="space-y-2 text-center">
          <Logo className="mx-auto size-12" />
          <h1 className="text-2xl font-semibold">Fermi</h1>
          <p className="text-sm text-muted">{t("signIn.lead")}</p>
        </div>
        {ended && (
          <Callout tone="warn" role="status">
            {t("signIn.ended")}
          </Callout>
        )}
        <Banner />
        <SignInProviders next={getSafeNext(params.get("next"))} error={params.get("error")} />
        {(passwords || wantsCode) && (
          <form onSubmit={submit} className="space-y-4 rounded-xl border bg-surface p-5 shadow-xs">
            {error && (
              <Callout tone="bad" role="alert">
                {getErrorMessage(t, error)}
              </Callout>
            )}
            {wantsCode ? <CodeField /> : <PasswordFields />}
            <Button type="submit" look="primary" className="w-full justify-center" disabled={isPending}>
              {t(isPending ? "signIn.submitting" : "signIn.submit")}
            </Button>
          </form>
        )}
        <SignInHelp />
      </main>
    </div>
  );
}

/** Buttons of the identity providers, and why the last sign-in by one was refused. */
function SignInProviders({ next, error }: { next: string; error: string | null }) {
  const { t } = useTranslation();
  const { data } = useQuery(signInProvidersQuery(error));
  const start = useMutation({
    mutationFn: (id: string) => startSignIn(id, next),
    onSuccess: (url) => {
      location.assign(url);
    },
  });
  if (!data) return null;
  return (
    <>
      {data.refusal && (
        <Callout tone="bad" role="alert">
          <p>{data.refusal.message}</p>
          <p>{data.refusal.hint}</p>
        </Callout>
      )}
      {start.error && (
        <Callout tone="bad" role="alert">
          {describeError(t, start.error)}
        </Callout>
      )}
      {data.providers.map(({ id, name }) => (
        <Button
          key={id}
          look="primary"
          className="w-full justify-center"
          disabled={start.isPending || start.isSuccess}
          onClick={() => {
            start.mutate(id);
          }}
        >
          {t("signIn.byProvider", { name })}
        </Button>
      ))}
    </>
  );
}

const LOGIN_LINK = ".venv/bin/fermi login-link";

/** How to sign in: a platform on the user's own machine may have no password. */
function SignInHelp() {
  const { t } = useTranslation();
  const { data } = useQuery(signInQuery);
  if (!data) return null;
  if (!data.embedded) return <p className="text-center text-sm text-muted">{t("signIn.askAdministrator")}</p>;
  return (
    <div className="space-y-2 text-sm text-muted">
      <p>{t("signIn.linkHint")}</p>
      <p className="flex items-center gap-1 rounded-lg border bg-sunken py-1 pr-1 pl-3 font-mono text-ink">
        <span className="flex-1">{LOGIN_LINK}</span>
        <CopyButton text={LOGIN_LINK} />
      </p>
    </div>
  );
}

function PasswordFields() {
  const { t } = useTranslation();
  return (
    <>
      <Field label={t("signIn.name")}>
        {(wiring) => <input {...wiring} name="name" required autoFocus autoComplete="username" className="control" />}
      </Field>
      <Field label={t("signIn.password")}>
        {(wiring) => (
          <input
            {...wiring}
            name="password"
            type="password"
            required
            autoComplete="current-password"
            className="control"
          />
        )}
      </Field>
    </>
  );
}

function CodeField() {
  const { t } = useTranslation();
  return (
    <Field label={t("signIn.code")} hint={t("signIn.codeHint")}>
      {(wiring) => (
        <input {...wiring} name="code" required autoFocus autoComplete="one-time-code" className="control" />
      )}
    </Field>
  );
}

function getErrorMessage(t: TFunction, error: Error): string {
  if (!(error instanceof ApiError)) return describeError(t, error);
  if (error.code === "too_many_login_attempts") return t("signIn.locked");
  return WRONG.has(error.code) ? t("signIn.wrong") : error.message;
}

import { useMutation, useQuery } from "@tanstack/react-query";
import { type SubmitEvent, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/errors";
import {
  activateSecondFactor,
  confirmPassword,
  fetchRecoveryCodes,
  getPictureUrl,
  PASSWORD_AGAIN,
  startSecondFactor,
} from "@/api/second-factor";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { CopyButton } from "@/ui/copy-button";
import { describeError, LoadError, Loading } from "@/ui/errors";
import { Field } from "@/ui/field";

/** Sets a second factor up: its key as a picture, a code as proof, then the recovery codes. `lead`: why, shown first. */
export function SecondFactorSetup({ lead, onDone }: { lead?: string; onDone: () => void }) {
  const { t } = useTranslation();
  const [asks, setAsks] = useState(false);
  const start = useQuery({
    queryKey: ["session", "second-factor"],
    queryFn: startSecondFactor,
    staleTime: Infinity,
    gcTime: 0,
    retry: false,
    refetchOnWindowFocus: false,
    refetchOnReconnect: false,
  });
  const activate = useMutation({
    mutationFn: async (code: string) => {
      await activateSecondFactor(code);
      return fetchRecoveryCodes().catch(() => []);
    },
    onError: (error) => setAsks(isPasswordAgain(error)),
  });
  if (activate.isSuccess) return <RecoveryCodes codes={activate.data} onDone={onDone} />;
  if (asks || isPasswordAgain(start.error)) {
    return (
      <PasswordAgain
        onDone={() => {
          setAsks(false);
          if (!start.data) void start.refetch();
          else if (activate.variables) activate.mutate(activate.variables); // the code that the user has entered
        }}
      />
    );
  }
  if (start.isPending) return <Loading />;
  if (start.isError) return <LoadError error={start.error} retry={() => void start.refetch()} />;
  if (start.data === null) {
    return (
      <div className="space-y-4">
        <Callout tone="ok">{t("secondFactor.present")}</Callout>
        <Button look="primary" className="w-full justify-center" onClick={onDone}>
          {t("secondFactor.continue")}
        </Button>
      </div>
    );
  }
  const submit = (event: SubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    activate.mutate((new FormData(event.currentTarget).get("code") as string).trim());
  };
  return (
    <form onSubmit={submit} className="space-y-4">
      {lead && <p className="text-sm">{lead}</p>}
      <p className="text-sm text-muted">{t("secondFactor.scan")}</p>
      <img
        src={getPictureUrl(start.data)}
        alt={t("secondFactor.picture")}
        className="mx-auto size-44 rounded-lg bg-white p-2"
      />
      <div className="space-y-1.5 text-sm">
        <p className="text-muted">{t("secondFactor.key")}</p>
        <p className="flex items-center gap-1 rounded-lg border bg-sunken py-1 pr-1 pl-3 font-mono">
          <span className="min-w-0 flex-1 break-all">{start.data}</span>
          <CopyButton text={start.data} />
        </p>
      </div>
      <Field
        label={t("secondFactor.code")}
        hint={t("secondFactor.codeHint")}
        error={activate.error && describeError(t, activate.error)}
      >
        {(wiring) => (
          <input
            {...wiring}
            name="code"
            required
            inputMode="numeric"
            autoComplete="one-time-code"
            maxLength={10}
            className="control"
          />
        )}
      </Field>
      <Button type="submit" look="primary" className="w-full justify-center" disabled={activate.isPending}>
        {t("secondFactor.activate")}
      </Button>
    </form>
  );
}

function isPasswordAgain(error: unknown): boolean {
  return error instanceof ApiError && error.code === PASSWORD_AGAIN;
}

/** Asks for the password again, because the sign-in was some minutes ago. */
export function PasswordAgain({ onDone }: { onDone: () => void }) {
  const { t } = useTranslation();
  const confirm = useMutation({ mutationFn: confirmPassword, onSuccess: onDone });
  const submit = (event: SubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    confirm.mutate(new FormData(event.currentTarget).get("password") as string);
  };
  return (
    <form onSubmit={submit} className="space-y-4">
      <p className="text-sm text-muted">{t("secondFactor.passwordAgain")}</p>
      <Field label={t("signIn.password")} error={confirm.error && describeError(t, confirm.error)}>
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
      <Button type="submit" look="primary" className="w-full justify-center" disabled={confirm.isPending}>
        {t("secondFactor.continue")}
      </Button>
    </form>
  );
}

function RecoveryCodes({ codes, onDone }: { codes: string[]; onDone: () => void }) {
  const { t } = useTranslation();
  return (
    <div className="space-y-4">
      <Callout tone="ok" role="status">
        {t("secondFactor.done")}
      </Callout>
      {codes.length > 0 && (
        <>
          <p className="text-sm text-muted">{t("secondFactor.recovery")}</p>
          <div className="flex items-start gap-1 rounded-lg border bg-sunken py-2 pr-1 pl-3 font-mono text-sm">
            <ul className="grid flex-1 grid-cols-2 gap-x-4">
              {codes.map((code) => (
                <li key={code}>{code}</li>
              ))}
            </ul>
            <CopyButton text={codes.join("\n")} />
          </div>
        </>
      )}
      <Button look="primary" className="w-full justify-center" onClick={onDone}>
        {t(codes.length > 0 ? "secondFactor.kept" : "secondFactor.continue")}
      </Button>
    </div>
  );
}

import { useMutation } from "@tanstack/react-query";
import { type SubmitEvent, useState } from "react";
import { useTranslation } from "react-i18next";
import { useSearchParams } from "react-router";
import { type Choice, decideDevice, describeDevice } from "@/api/oauth";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { describeError } from "@/ui/errors";
import { Field } from "@/ui/field";
import { Consent } from "./consent";

/** Where a person types the code that a device without a browser shows. */
export function Component() {
  const { t } = useTranslation();
  const [params] = useSearchParams();
  const [code, setCode] = useState(params.get("code")?.slice(0, 20) ?? "");
  const asked = useMutation({ mutationFn: describeDevice });
  const decide = useMutation({ mutationFn: (choice?: Choice) => decideDevice(code, choice) });
  const submit = (event: SubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    asked.mutate(code);
  };
  return (
    <div className="mx-auto max-w-2xl py-6">
      <title>{`${t("oauth.devicePage")} · Fermi`}</title>
      {decide.data ? (
        <Callout tone={decide.data.approved ? "ok" : "info"} role="status">
          {t(decide.data.approved ? "oauth.deviceApproved" : "oauth.deviceDenied")}
        </Callout>
      ) : asked.data ? (
        <Consent asked={asked.data} isPending={decide.isPending} error={decide.error} onDecide={decide.mutate} />
      ) : (
        <form onSubmit={submit} className="mx-auto max-w-sm space-y-4 rounded-xl border bg-surface p-5 shadow-xs">
          <h1 className="text-lg font-semibold">{t("oauth.devicePage")}</h1>
          {asked.error && (
            <Callout tone="bad" role="alert">
              {describeError(t, asked.error)}
            </Callout>
          )}
          <Field label={t("oauth.code")} hint={t("oauth.codeHint")}>
            {(wiring) => (
              <input
                {...wiring}
                value={code}
                onChange={({ target }) => setCode(target.value)}
                required
                autoFocus
                maxLength={20}
                autoComplete="off"
                className="control font-mono uppercase"
              />
            )}
          </Field>
          <Button type="submit" look="primary" className="w-full justify-center" disabled={asked.isPending}>
            {t("oauth.next")}
          </Button>
        </form>
      )}
    </div>
  );
}

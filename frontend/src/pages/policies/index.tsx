import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, type SubmitEvent, useState } from "react";
import { useTranslation } from "react-i18next";
import { ApiError } from "@/api/errors";
import { changeSignInPolicy, type SignInPolicy, type SignInPolicyRequest, signInPolicyQuery } from "@/api/policies";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { ErrorMessage, LoadError, Loading } from "@/ui/errors";
import { Field } from "@/ui/field";
import { formatProblems } from "@/ui/form-dialog";
import { Page } from "@/ui/page";
import { toast } from "@/ui/toast";
import { AuditStream } from "./audit-stream";

const RULES = ["nobody", "administrators", "everybody"] as const;
const VARIABLES = {
  passwordLength: "FERMI_PASSWORD_LENGTH",
  secondFactor: "FERMI_SECOND_FACTOR",
  tokensExempt: "FERMI_SECOND_FACTOR_TOKENS_EXEMPT",
  sessionHours: "FERMI_SESSION_HOURS",
  idleMinutes: "FERMI_SESSION_IDLE_MINUTES",
} as const;

/** Rules for passwords, second factors, sessions and the notice before sign-in. Administrators only. */
export function Component() {
  const { t } = useTranslation();
  const policy = useQuery(signInPolicyQuery);
  return (
    <Page title={t("app.policies")}>
      <p className="mb-4 max-w-3xl text-sm text-muted">{t("policies.lead")}</p>
      {policy.isError && <LoadError error={policy.error} retry={() => void policy.refetch()} />}
      {policy.isPending && <Loading />}
      {policy.data && (
        <div className="max-w-3xl space-y-4">
          <PolicyForm key={JSON.stringify(policy.data)} policy={policy.data} />
          <AuditStream />
        </div>
      )}
    </Page>
  );
}

function PolicyForm({ policy }: { policy: SignInPolicy }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [values, setValues] = useState<SignInPolicyRequest>(() => getRequest(policy));
  const save = useMutation({
    mutationFn: changeSignInPolicy,
    onSuccess: async (answer) => {
      client.setQueryData(signInPolicyQuery.queryKey, answer);
      await client.invalidateQueries({ queryKey: ["session"] });
      toast.success(t("policies.saved"));
    },
  });
  const problems = save.error instanceof ApiError ? save.error.problems : [];
  const change = (changed: Partial<SignInPolicyRequest>) => setValues({ ...values, ...changed });
  const isFixed = (name: string) => policy.readonly.includes(name);
  const describe = (name: keyof SignInPolicyRequest, hint?: ReactNode) => {
    const problem = problems.find(({ field }) => field === name);
    const variable = isFixed(name) ? (VARIABLES as Record<string, string>)[name] : undefined;
    return {
      error: problem && formatProblems(problem),
      hint: variable ? t("policies.fixed", { variable }) : hint,
    };
  };
  const submit = (event: SubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    save.mutate(values);
  };
  const count =
    values.secondFactor === "nobody" || values.secondFactor === policy.secondFactor
      ? 0
      : policy.withoutSecondFactor[values.secondFactor];
  const number = (name: "passwordLength" | "sessionHours" | "idleMinutes", min: number, max: number) => (
    <Field label={t(`policies.${name}`)} {...describe(name, t(`policies.${name}Hint`))}>
      {(wiring) => (
        <input
          {...wiring}
          type="number"
          required
          min={min}
          max={max}
          className="control max-w-32"
          disabled={isFixed(name)}
          value={Number.isNaN(values[name]) ? "" : values[name]}
          onChange={({ target }) => change({ [name]: target.valueAsNumber })}
        />
      )}
    </Field>
  );
  const text = (name: "bannerTitleEn" | "bannerTitleZh" | "bannerTextEn" | "bannerTextZh") => (
    <Field label={t(`policies.${name}`)} {...describe(name)}>
      {(wiring) =>
        name.startsWith("bannerText") ? (
          <textarea
            {...wiring}
            rows={4}
            maxLength={10_000}
            className="control h-auto py-2"
            value={values[name]}
            onChange={({ target }) => change({ [name]: target.value })}
          />
        ) : (
          <input
            {...wiring}
            maxLength={200}
            className="control"
            value={values[name]}
            onChange={({ target }) => change({ [name]: target.value })}
          />
        )
      }
    </Field>
  );
  return (
    <form onSubmit={submit} className="space-y-4">
      <Card title={t("policies.passwords")}>{number("passwordLength", 8, 64)}</Card>
      <Card title={t("policies.secondFactor")}>
        <div className="space-y-4">
          <Field label={t("policies.secondFactorOf")} {...describe("secondFactor", t("policies.secondFactorHint"))}>
            {(wiring) => (
              <select
                {...wiring}
                className="control"
                disabled={isFixed("secondFactor")}
                value={values.secondFactor}
                onChange={({ target }) => change({ secondFactor: target.value as SignInPolicy["secondFactor"] })}
              >
                {RULES.map((rule) => (
                  <option key={rule} value={rule}>
                    {t(`policies.rule.${rule}`)}
                  </option>
                ))}
              </select>
            )}
          </Field>
          {count > 0 && (
            <Callout tone="warn" role="status">
              {t("policies.without", { count })}
            </Callout>
          )}
          <Check
            label={t("policies.tokensExempt")}
            hint={describe("tokensExempt", t("policies.tokensExemptHint")).hint}
            disabled={isFixed("tokensExempt")}
            checked={values.tokensExempt}
            onChange={(tokensExempt) => change({ tokensExempt })}
          />
        </div>
      </Card>
      <Card title={t("policies.sessions")}>
        <div className="grid gap-4 sm:grid-cols-2">
          {number("sessionHours", 0, 8760)}
          {number("idleMinutes", 0, 43_200)}
        </div>
      </Card>
      <Card title={t("policies.banner")}>
        <div className="space-y-4">
          <p className="text-sm text-muted">{t("policies.bannerHint")}</p>
          {text("bannerTitleEn")}
          {text("bannerTextEn")}
          {text("bannerTitleZh")}
          {text("bannerTextZh")}
          <Check
            label={t("policies.bannerRequired")}
            hint={describe("bannerRequired").error ?? t("policies.bannerRequiredHint")}
            checked={values.bannerRequired}
            onChange={(bannerRequired) => change({ bannerRequired })}
          />
        </div>
      </Card>
      {save.error && problems.length === 0 && (
        <Callout tone="bad" role="alert">
          <ErrorMessage error={save.error} />
        </Callout>
      )}
      {problems.length > 0 && (
        <Callout tone="bad" role="alert">
          {problems.map((problem) => (
            <p key={problem.field}>{formatProblems(problem)}</p>
          ))}
        </Callout>
      )}
      <div className="flex justify-end">
        <Button type="submit" look="primary" disabled={save.isPending}>
          {t("app.save")}
        </Button>
      </div>
    </form>
  );
}

interface CheckProps {
  label: string;
  hint: ReactNode;
  checked: boolean;
  disabled?: boolean;
  onChange: (checked: boolean) => void;
}

function Check({ label, hint, checked, disabled, onChange }: CheckProps) {
  return (
    <label className="flex items-start gap-2 text-sm">
      <input
        type="checkbox"
        className="mt-1"
        checked={checked}
        disabled={disabled}
        onChange={({ target }) => onChange(target.checked)}
      />
      <span>
        {label}
        <span className="block text-muted">{hint}</span>
      </span>
    </label>
  );
}

function getRequest(policy: SignInPolicy): SignInPolicyRequest {
  const { passwordLength, secondFactor, tokensExempt, sessionHours, idleMinutes, bannerRequired } = policy;
  const { bannerTitleEn, bannerTitleZh, bannerTextEn, bannerTextZh } = policy;
  return {
    passwordLength,
    secondFactor,
    tokensExempt,
    sessionHours,
    idleMinutes,
    bannerTitleEn,
    bannerTitleZh,
    bannerTextEn,
    bannerTextZh,
    bannerRequired,
  };
}

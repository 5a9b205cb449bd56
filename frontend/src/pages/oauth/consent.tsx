import { useQuery } from "@tanstack/react-query";
import type { TFunction } from "i18next";
import { type SubmitEvent, useState } from "react";
import { useTranslation } from "react-i18next";
import type { AccessRequested, Choice } from "@/api/oauth";
import { meQuery } from "@/api/session";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { CheckOption } from "@/ui/check-list";
import { describeError } from "@/ui/errors";
import { Field } from "@/ui/field";

const LIFETIMES = [1, 7, 30, 90] as const;
/** Scope of the command line: everything that its person may do. */
const ALL = "all";
const OPTION = "items-start gap-2 text-sm [&>input]:mt-0.5";

interface Props {
  asked: AccessRequested;
  isPending: boolean;
  error: Error | null;
  /** Grants, or denies without a choice. */
  onDecide: (choice?: Choice) => void;
}

/** Who requests access to what, and what of it the person grants. */
export function Consent({ asked, isPending, error, onDecide }: Props) {
  const { t } = useTranslation();
  const [scopes, setScopes] = useState<readonly string[]>(asked.scopes);
  const [projects, setProjects] = useState<readonly string[] | null>(null);
  const submit = (event: SubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    const days = Number(new FormData(event.currentTarget).get("days"));
    onDecide({ scopes: [...scopes], projects: projects && [...projects], days });
  };
  const incomplete = scopes.length === 0 || projects?.length === 0;
  return (
    <form onSubmit={submit} className="space-y-5 rounded-xl border bg-surface p-5 shadow-xs">
      <div className="space-y-2">
        <h1 className="text-lg font-semibold break-words">{t("oauth.title", { client: asked.client })}</h1>
        <p className="text-sm text-muted">{t("oauth.as", { user: asked.user })}</p>
        {asked.redirectHost && <p className="text-sm text-muted">{t("oauth.returns", { host: asked.redirectHost })}</p>}
      </div>
      {!asked.firstParty && <Callout tone="warn">{t("oauth.unverified")}</Callout>}
      {error && (
        <Callout tone="bad" role="alert">
          {describeError(t, error)}
        </Callout>
      )}
      <Scopes offered={asked.scopes} chosen={scopes} onChange={setScopes} />
      <Projects chosen={projects} onChange={setProjects} />
      <Field label={t("oauth.days")} hint={t("oauth.daysHint")}>
        {(wiring) => (
          <select {...wiring} name="days" defaultValue={asked.days} className="control">
            {LIFETIMES.filter((days) => days <= asked.maxDays).map((days) => (
              <option key={days} value={days}>
                {t("oauth.dayCount", { count: days })}
              </option>
            ))}
          </select>
        )}
      </Field>
      <div className="flex justify-end gap-2">
        <Button disabled={isPending} onClick={() => onDecide()}>
          {t("oauth.deny")}
        </Button>
        <Button type="submit" look="primary" disabled={isPending || incomplete}>
          {t("oauth.approve")}
        </Button>
      </div>
    </form>
  );
}

interface ListProps<Chosen> {
  chosen: Chosen;
  onChange: (chosen: Chosen) => void;
}

function Scopes({ offered, chosen, onChange }: ListProps<readonly string[]> & { offered: readonly string[] }) {
  const { t } = useTranslation();
  if (offered.length === 0) return <Callout tone="bad">{t("oauth.nothing")}</Callout>;
  return (
    <fieldset className="space-y-2">
      <legend className="text-sm font-medium">{t("oauth.permissions")}</legend>
      <div className="grid gap-1 sm:grid-cols-2">
        {offered.map((scope) => (
          <CheckOption
            key={scope}
            id={scope}
            name={describeScope(t, scope)}
            chosen={chosen}
            onChange={onChange}
            className={OPTION}
          />
        ))}
      </div>
    </fieldset>
  );
}

function Projects({ chosen, onChange }: ListProps<readonly string[] | null>) {
  const { t } = useTranslation();
  const me = useQuery(meQuery);
  const projects = me.data?.projects ?? [];
  return (
    <fieldset className="space-y-2">
      <legend className="text-sm font-medium">{t("oauth.projects")}</legend>
      <label className="flex items-center gap-2 text-sm">
        <input type="radio" name="where" checked={chosen === null} onChange={() => onChange(null)} />
        {t("oauth.allProjects")}
      </label>
      <label className="flex items-center gap-2 text-sm">
        <input type="radio" name="where" checked={chosen !== null} onChange={() => onChange([])} />
        {t("oauth.someProjects")}
      </label>
      {chosen && (
        <div className="grid max-h-60 gap-1 overflow-y-auto pl-6 sm:grid-cols-2">
          {projects.map(({ id, name }) => (
            <CheckOption key={id} id={id} name={name} chosen={chosen} onChange={onChange} className={OPTION} />
          ))}
        </div>
      )}
    </fieldset>
  );
}

/** Returns a scope in words; one that the console does not know yet, as it is. */
function describeScope(t: TFunction, scope: string): string {
  if (scope === ALL) return t("oauth.everything");
  const [resource = "", verb = ""] = scope.split(":");
  const what = t(`oauth.resource.${resource as "tasks"}`, { defaultValue: resource });
  return t(`oauth.verb.${verb as "read"}`, { what, defaultValue: scope });
}

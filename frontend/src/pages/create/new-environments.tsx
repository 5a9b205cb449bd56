import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { environmentTemplatesQuery } from "@/api/managed-environments";
import { ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";
import { LoadError, Loading } from "@/ui/errors";
import { Field } from "@/ui/field";
import { getProblemText } from "./problems";
import type { SectionProps } from "./section-props";

const AFTERWARDS = ["delete", "stop", "keep"] as const;
const FIELD = "newEnvironments";

/** Environments to create for the task, and what happens to them afterwards. */
export default function NewEnvironments({ draft: { made }, problems, onChange }: SectionProps) {
  const { t } = useTranslation();
  const templates = useQuery(environmentTemplatesQuery);
  const change = (patch: Partial<typeof made>) => onChange({ made: { ...made, ...patch } });
  const full = problems.get(FIELD)?.map(({ message, hint }) => `${message} ${hint}`.trim());
  return (
    <Card
      title={t("managedEnvironment.newMode.title")}
      aside={
        <ButtonLink look="ghost" size="sm" to="/environment-templates">
          {t("managedEnvironment.toTemplates")}
        </ButtonLink>
      }
    >
      <p className="mb-3 text-sm text-muted">{t("managedEnvironment.newMode.hint")}</p>
      {full && <p className="mb-3 text-sm whitespace-pre-line text-bad-ink">{full.join("\n")}</p>}
      {templates.isError && <LoadError error={templates.error} retry={() => void templates.refetch()} />}
      {templates.isPending && <Loading />}
      <div className="grid items-start gap-4 sm:grid-cols-2">
        <Field
          label={t("managedEnvironment.newMode.template")}
          error={getProblemText(problems, `${FIELD}.template`)}
          className="sm:col-span-2"
        >
          {(wiring) => (
            <select
              {...wiring}
              name={`${FIELD}.template`}
              className="control"
              value={made.template}
              onChange={({ target }) => change({ template: target.value })}
            >
              <option value="">{t("managedEnvironment.newMode.chooseTemplate")}</option>
              {made.template && templates.data && !templates.data.some(({ id }) => id === made.template) && (
                <option value={made.template}>{made.template}</option>
              )}
              {templates.data?.map(({ id, name, gpuCount, gpuType }) => (
                <option key={id} value={id}>
                  {gpuCount > 0 ? `${name} (${gpuCount}x ${gpuType})` : name}
                </option>
              ))}
            </select>
          )}
        </Field>
        <Field label={t("managedEnvironment.newMode.count")} error={getProblemText(problems, `${FIELD}.count`)}>
          {(wiring) => (
            <input
              {...wiring}
              name={`${FIELD}.count`}
              inputMode="numeric"
              autoComplete="off"
              className="control"
              value={made.count}
              onChange={({ target }) => change({ count: target.value })}
            />
          )}
        </Field>
        <Field
          label={t("managedEnvironment.newMode.afterwards")}
          hint={t("managedEnvironment.newMode.afterwardsHint")}
          error={getProblemText(problems, `${FIELD}.afterwards`)}
        >
          {(wiring) => (
            <select
              {...wiring}
              name={`${FIELD}.afterwards`}
              className="control"
              value={made.afterwards}
              onChange={({ target }) => change({ afterwards: target.value })}
            >
              {AFTERWARDS.map((each) => (
                <option key={each} value={each}>
                  {t(`managedEnvironment.afterwardsOf.${each}`)}
                </option>
              ))}
            </select>
          )}
        </Field>
      </div>
    </Card>
  );
}

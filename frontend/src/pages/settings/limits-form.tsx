import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Gauge } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { zonesQuery } from "@/api/inventory";
import { invalidateLimits, saveLimits } from "@/api/limits";
import type { Limits } from "@/api/types";
import { Button } from "@/ui/button";
import { Field } from "@/ui/field";
import { FormDialog, FormRow, TextField } from "@/ui/form-dialog";
import { FIELDS, parseLimits, formatLimits } from "./limits-fields";

const CLASSES = ["low", "normal", "high", "urgent"] as const;
const OF_ENVIRONMENTS = ["maxEnvironments", "maxEnvironmentGpus"] as const;
const OF_MEMBERS = [
  ["userMaxEnvironments", "maxEnvironments"],
  ["userMaxEnvironmentGpus", "maxEnvironmentGpus"],
] as const;
const AT_BUDGET = ["warn", "refuse", "preemptible"] as const;

/** A project's limits, editable by administrators. */
export function EditLimits({ limits }: { limits: Limits }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const zones = useQuery(zonesQuery).data ?? [];
  const texts = formatLimits(limits);
  const save = async (typed: Record<string, string>) => {
    await saveLimits(limits.projectId, parseLimits(typed));
    await invalidateLimits(client, limits.projectId);
  };
  return (
    <FormDialog
      wide
      title={t("limits.changeTitle")}
      description={t("limits.changeHint")}
      submit={t("app.save")}
      fields={FIELDS}
      onSubmit={save}
      trigger={
        <Button size="sm">
          <Gauge />
          {t("limits.change")}
        </Button>
      }
    >
      {(problem) => {
        const wired = (name: (typeof FIELDS)[number]) => ({ name, defaultValue: texts[name], error: problem(name) });
        const number = (name: (typeof FIELDS)[number]) => ({ ...wired(name), inputMode: "numeric" as const });
        return (
          <>
            <FormRow title={t("limits.ofProject")}>
              <TextField
                {...number("guaranteedGpus")}
                label={t("limits.guaranteed")}
                hint={t("limits.guaranteedHint")}
              />
              <TextField {...number("weight")} label={t("limits.weight")} hint={t("limits.weightHint")} />
              <TextField {...number("mostGpus")} label={t("limits.mostGpus")} hint={t("limits.emptyIsNone")} />
              <TextField {...number("mostTasks")} label={t("limits.mostTasks")} hint={t("limits.emptyIsNone")} />
              <TextField {...number("gpuHours")} label={t("limits.gpuHours")} hint={t("limits.emptyIsNone")} />
              <TextField
                {...number("longestRunSeconds")}
                label={t("limits.longestRunHours")}
                hint={t("limits.longestRunHint")}
              />
              <TextField
                {...wired("gpuTypes")}
                label={t("limits.gpuTypes")}
                hint={t("limits.listHint")}
                placeholder="A100, H100"
              />
              <CheckboxGroup
                {...wired("priorities")}
                label={t("limits.priorities")}
                hint={t("limits.usualPriorities")}
                options={CLASSES.map((each) => [each, t(`queue.classOf.${each}`)])}
              />
              <CheckboxGroup
                {...wired("zones")}
                label={t("limits.zones")}
                hint={t("limits.noneIsAll")}
                options={zones.map(({ id, name }) => [id, name])}
              />
            </FormRow>
            <FormRow title={t("limits.kept")}>
              <TextField {...number("maxFileBytes")} label={t("limits.fileGib")} hint={t("limits.emptyIsNone")} />
              <TextField {...number("maxCacheBytes")} label={t("limits.cacheGib")} hint={t("limits.cacheGibHint")} />
              {OF_ENVIRONMENTS.map((name) => (
                <TextField key={name} {...number(name)} label={t(`limits.${name}`)} hint={t("limits.emptyIsNone")} />
              ))}
            </FormRow>
            <FormRow title={t("limits.ofEachMember")}>
              <TextField {...number("userMostGpus")} label={t("limits.mostGpus")} hint={t("limits.emptyIsNone")} />
              <TextField {...number("userMostTasks")} label={t("limits.mostTasks")} hint={t("limits.emptyIsNone")} />
              <TextField {...number("userGpuHours")} label={t("limits.gpuHours")} hint={t("limits.emptyIsNone")} />
              {OF_MEMBERS.map(([name, label]) => (
                <TextField key={name} {...number(name)} label={t(`limits.${label}`)} hint={t("limits.emptyIsNone")} />
              ))}
            </FormRow>
            <FormRow title={t("limits.budget")}>
              <TextField
                {...number("budget")}
                label={t("limits.budgetIn", { currency: limits.currency })}
                hint={t("limits.emptyIsNone")}
              />
              <Field label={t("limits.atBudget")} error={problem("atBudget")}>
                {(wiring) => (
                  <select {...wiring} name="atBudget" className="control" defaultValue={texts.atBudget}>
                    {AT_BUDGET.map((each) => (
                      <option key={each} value={each}>
                        {t(`limits.atBudgetOf.${each}`)}
                      </option>
                    ))}
                  </select>
                )}
              </Field>
            </FormRow>
          </>
        );
      }}
    </FormDialog>
  );
}

interface ChecksProps {
  name: string;
  label: string;
  hint: string;
  error: string | undefined;
  defaultValue: string;
  options: [value: string, label: string][];
}

/** Several of a few values as one text: "low, high". */
function CheckboxGroup({ name, label, hint, error, defaultValue, options }: ChecksProps) {
  const [chosen, setChosen] = useState(defaultValue.split(", ").filter(Boolean));
  const toggle = (value: string) =>
    setChosen(chosen.includes(value) ? chosen.filter((each) => each !== value) : [...chosen, value]);
  return (
    <Field label={label} hint={hint} error={error}>
      {({ id, ...wiring }) => (
        <div
          id={id}
          role="group"
          aria-label={label}
          aria-describedby={wiring["aria-describedby"]}
          className="flex flex-wrap gap-x-4 gap-y-1"
        >
          <input type="hidden" name={name} value={chosen.join(", ")} />
          {options.map(([value, text]) => (
            <label key={value} className="flex items-center gap-1.5 text-sm">
              <input type="checkbox" checked={chosen.includes(value)} onChange={() => toggle(value)} />
              {text}
            </label>
          ))}
        </div>
      )}
    </Field>
  );
}

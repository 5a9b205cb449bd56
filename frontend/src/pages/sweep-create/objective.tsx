import { useId } from "react";
import { useTranslation } from "react-i18next";
import { Card } from "@/ui/card";
import { Field } from "@/ui/field";
import type { Goal } from "./draft";
import type { SectionProps } from "./section-props";
import { SelectField, TextField } from "./text-field";

interface ObjectiveProps extends SectionProps {
  /** Metrics that earlier runs reported. */
  metrics: string[];
  /** The goal that the platform's rule gives for the metric. */
  rule: Goal | undefined;
}

/** What is made small or large. */
export function Objective({ draft, problemOf, onChange, metrics, rule }: ObjectiveProps) {
  const { t } = useTranslation();
  const list = useId();
  return (
    <Card title={t("sweepForm.objective")}>
      <div className="grid items-start gap-4 sm:grid-cols-2">
        <Field
          label={t("sweepForm.metric")}
          hint={t("sweepForm.metricHint")}
          error={problemOf("objective.metric") ?? problemOf("objective")}
        >
          {(wiring) => (
            <>
              <input
                {...wiring}
                name="objective.metric"
                list={list}
                className="control font-mono"
                autoComplete="off"
                spellCheck={false}
                placeholder="val_loss"
                value={draft.metric}
                onChange={({ target }) => onChange({ metric: target.value })}
              />
              <datalist id={list}>
                {metrics.map((name) => (
                  <option key={name} value={name} />
                ))}
              </datalist>
            </>
          )}
        </Field>
        <SelectField<Goal>
          name="objective.goal"
          label={t("sweepForm.goal")}
          hint={!draft.goal && rule && t("sweepForm.goalByRule")}
          error={problemOf("objective.goal")}
          value={draft.goal || rule || "minimize"}
          options={[
            ["minimize", t("sweep.goal.minimize")],
            ["maximize", t("sweep.goal.maximize")],
          ]}
          onChoose={(goal) => onChange({ goal })}
        />
        <SelectField
          name="objective.value"
          label={t("sweepForm.statistic")}
          error={problemOf("objective.value")}
          value={draft.value}
          options={(["best", "last", "min", "max"] as const).map((each) => [each, t(`sweepForm.statisticOf.${each}`)])}
          onChoose={(value) => onChange({ value })}
        />
        <TextField
          name="objective.target"
          label={t("sweepForm.target")}
          hint={t("sweepForm.targetHint")}
          error={problemOf("objective.target")}
          value={draft.target}
          onText={(target) => onChange({ target })}
        />
      </div>
    </Card>
  );
}

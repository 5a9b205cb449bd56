import { useTranslation } from "react-i18next";
import { Card } from "@/ui/card";
import { type Passing, PASSING } from "./arguments";
import { listPruningSettings } from "./draft";
import type { SectionProps } from "./section-props";
import { SelectField, TextField } from "./text-field";

const METHODS = ["tpe", "random", "grid", "cmaes"] as const;
const PRUNING = ["none", "asha", "median"] as const;
const PRIORITIES = ["low", "normal", "high", "urgent"] as const;

/** How parameters are chosen, and when the sweep ends. */
export function Search({ draft, problemOf, onChange }: SectionProps) {
  const { t } = useTranslation();
  const { method, budget } = draft;
  const amount = (part: "trials" | "gpuHours" | "cost", hint?: string) => (
    <TextField
      name={`budget.${part}`}
      label={t(`sweepForm.${part}`)}
      hint={hint}
      error={problemOf(`budget.${part}`)}
      value={budget[part]}
      onText={(text) => onChange({ budget: { ...budget, [part]: text } })}
    />
  );
  const error = problemOf("budget");
  return (
    <Card title={t("sweepForm.search")}>
      <div className="grid items-start gap-4 sm:grid-cols-2">
        <SelectField
          name="method"
          label={t("sweep.method")}
          hint={t(`sweepForm.methodHint.${METHODS.find((each) => each === method) ?? "tpe"}`)}
          error={problemOf("method")}
          value={method}
          options={METHODS.map((each) => [each, t(`sweep.methodOf.${each}`)])}
          onChoose={(next) => onChange({ method: next })}
        />
        <TextField
          name="parallel"
          label={t("sweepForm.parallel")}
          hint={t("sweepForm.parallelHint")}
          error={problemOf("parallel")}
          value={draft.parallel}
          onText={(parallel) => onChange({ parallel })}
        />
        {amount("trials", method === "grid" ? t("sweepForm.trialsOfGrid") : undefined)}
        {amount("gpuHours")}
        {amount("cost")}
        <TextField
          name="budget.endsAt"
          type="datetime-local"
          label={t("sweepForm.endsAt")}
          error={problemOf("budget.endsAt")}
          value={budget.endsAt}
          onText={(endsAt) => onChange({ budget: { ...budget, endsAt } })}
        />
      </div>
      {error && <p className="mt-2 text-sm text-bad-ink">{error}</p>}
      <p className="mt-2 text-sm text-muted">{t("sweepForm.budgetHint")}</p>
    </Card>
  );
}

/** How trials are ended early. */
export function Pruning({ draft, problemOf, onChange }: SectionProps) {
  const { t } = useTranslation();
  const { pruning } = draft;
  const method = PRUNING.find((each) => each === pruning.method) ?? "none";
  const usual = { minSteps: "1", maxSteps: t("sweepForm.asTotalSteps"), reduction: "3", startTrials: "5" };
  return (
    <Card title={t("sweepForm.pruning")}>
      <div className="grid items-start gap-4 sm:grid-cols-2">
        <SelectField
          name="pruning.method"
          label={t("sweep.method")}
          hint={t(`sweepForm.pruningHint.${method}`)}
          error={problemOf("pruning.method") ?? problemOf("pruning")}
          value={method}
          className="sm:col-span-2"
          options={PRUNING.map((each) => [each, t(`sweepForm.pruningOf.${each}`)])}
          onChoose={(next) => onChange({ pruning: { ...pruning, method: next } })}
        />
        {listPruningSettings(method).map((part) => (
          <TextField
            key={part}
            name={`pruning.${part}`}
            label={t(`sweepForm.${part}`)}
            error={problemOf(`pruning.${part}`)}
            placeholder={part === "interval" ? t("sweepForm.asMinSteps") : usual[part]}
            value={pruning[part]}
            onText={(text) => onChange({ pruning: { ...pruning, [part]: text } })}
          />
        ))}
      </div>
    </Card>
  );
}

/** What trials are as tasks. */
export function TrialSettings({ draft, problemOf, onChange }: SectionProps) {
  const { t } = useTranslation();
  return (
    <Card title={t("sweep.trials")}>
      <div className="grid items-start gap-4 sm:grid-cols-2">
        <TextField
          name="name"
          kind="text"
          label={t("sweepForm.name")}
          error={problemOf("name")}
          className="sm:col-span-2"
          value={draft.name}
          onText={(name) => onChange({ name })}
        />
        <SelectField
          name="request.priority"
          label={t("create.priority")}
          error={problemOf("request.priority")}
          value={draft.priority}
          options={PRIORITIES.map((each) => [each, t(`create.choice.priority.${each}`)])}
          onChoose={(priority) => onChange({ priority })}
        />
        <SelectField
          name="request.preemptible"
          label={t("create.preemptible")}
          error={problemOf("request.preemptible")}
          value={String(draft.preemptible)}
          options={[
            ["true", t("create.yes")],
            ["false", t("create.no")],
          ]}
          onChoose={(chosen) => onChange({ preemptible: chosen === "true" })}
        />
        <p className="text-sm text-muted sm:col-span-2">{t("sweepForm.backfill")}</p>
        {draft.request?.entrypoint && (
          <SelectField<Passing>
            name="request.entrypoint.args"
            label={t("sweepForm.passing")}
            hint={t("sweepForm.passingHint")}
            value={draft.passing}
            className="sm:col-span-2"
            options={PASSING.map((each) => [each, t(`sweepForm.passingOf.${each}`)])}
            onChoose={(passing) => onChange({ passing })}
          />
        )}
      </div>
    </Card>
  );
}

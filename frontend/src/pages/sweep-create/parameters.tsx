import { useQuery } from "@tanstack/react-query";
import { Plus, Trash2, X } from "lucide-react";
import { useTranslation } from "react-i18next";
import { modelsQuery } from "@/api/inventory";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import {
  type Condition,
  createParameter,
  type Kind,
  KINDS,
  listProposals,
  type ParameterDraft,
  proposeParameter,
  type Proposal,
} from "./draft";
import type { SectionProps } from "./section-props";
import { SelectField, TextField } from "./text-field";
import { formatValue } from "./values";

/** Proposals that are shown. */
const MAX_PROPOSALS = 40;

const formatProposal = ({ name, value }: Proposal) => `${name} = ${formatValue(value)}`;

/** The parameters that trials differ in. */
export function Parameters({ draft, problemOf, onChange }: SectionProps) {
  const { t } = useTranslation();
  const models = useQuery(modelsQuery).data ?? [];
  const { parameters, request } = draft;
  const defaults = models.find(({ id }) => id === request?.modelId)?.defaults ?? {};
  const names = parameters.map(({ name }) => name.trim());
  const proposals = listProposals(request, defaults)
    .filter(({ name }) => !names.includes(name))
    .slice(0, MAX_PROPOSALS);
  const add = (parameter: ParameterDraft) => onChange({ parameters: [...parameters, parameter] });
  const change = (key: number, patch: Partial<ParameterDraft>) =>
    onChange({ parameters: parameters.map((each) => (each.key === key ? { ...each, ...patch } : each)) });
  const remove = (key: number) => onChange({ parameters: parameters.filter((each) => each.key !== key) });
  const error = problemOf("parameters");
  return (
    <Card title={t("sweepForm.parameters")}>
      <div className="space-y-4">
        {proposals.length > 0 && (
          <div className="space-y-1.5">
            <p className="text-sm text-muted">{t("sweepForm.proposals")}</p>
            <div className="flex max-h-32 flex-wrap gap-1.5 overflow-y-auto">
              {proposals.map((proposal) => (
                <button
                  key={proposal.name}
                  type="button"
                  aria-label={t("sweepForm.addProposal", { parameter: formatProposal(proposal) })}
                  className="inline-flex max-w-full items-center gap-1 rounded-full border px-2.5 py-0.5 text-xs text-muted -outline-offset-2 hover:text-ink"
                  onClick={() => add(proposeParameter(proposal))}
                >
                  <Plus aria-hidden className="size-3 shrink-0" />
                  <span className="truncate font-mono">{formatProposal(proposal)}</span>
                </button>
              ))}
            </div>
          </div>
        )}
        {parameters.length > 0 && (
          <ol className="space-y-3">
            {parameters.map((parameter) => (
              <ParameterRow
                key={parameter.key}
                parameter={parameter}
                others={names.filter((name) => name && name !== parameter.name.trim())}
                problemOf={problemOf}
                onChange={(patch) => change(parameter.key, patch)}
                onRemove={() => remove(parameter.key)}
              />
            ))}
          </ol>
        )}
        {error && <p className="text-sm text-bad-ink">{error}</p>}
        <Button size="sm" name="parameters" onClick={() => add(createParameter())}>
          <Plus />
          {t("sweepForm.addParameter")}
        </Button>
      </div>
    </Card>
  );
}

interface RowProps {
  parameter: ParameterDraft;
  /** Names of the other parameters. */
  others: string[];
  problemOf: SectionProps["problemOf"];
  onChange: (patch: Partial<ParameterDraft>) => void;
  onRemove: () => void;
}

function ParameterRow({ parameter, others, problemOf, onChange, onRemove }: RowProps) {
  const { t } = useTranslation();
  const { key, name, kind, conditions } = parameter;
  const control = (part: string) => `parameters.${key}${part && `.${part}`}`;
  const isRange = kind === "float" || kind === "int";
  const label = name.trim() || t("sweepForm.unnamed");
  const text = (part: "min" | "max" | "step") => (
    <TextField
      name={control(part)}
      label={t(`sweepForm.${part}`)}
      error={problemOf(control(part))}
      placeholder={part === "step" ? (kind === "int" ? "1" : t("sweepForm.noStep")) : undefined}
      value={parameter[part]}
      onText={(value) => onChange({ [part]: value })}
    />
  );
  return (
    <li>
      <fieldset aria-label={label} className="min-w-0 space-y-3 rounded-lg border p-3">
        <div className="flex items-start gap-2">
          <div className="grid min-w-0 flex-1 gap-3 sm:grid-cols-2">
            <TextField
              name={control("")}
              kind="values"
              label={t("sweepForm.parameterName")}
              error={problemOf(control("")) ?? problemOf(control("type"))}
              value={name}
              onText={(value) => onChange({ name: value })}
            />
            <SelectField<Kind>
              name={control("kind")}
              label={t("sweepForm.kind")}
              value={kind}
              options={KINDS.map((each) => [each, t(`sweepForm.kindOf.${each}`)] as const)}
              onChoose={(next) => onChange({ kind: next })}
            />
          </div>
          <Button
            look="ghost"
            size="icon"
            className="mt-6"
            aria-label={t("sweepForm.removeParameter", { name: label })}
            onClick={onRemove}
          >
            <Trash2 />
          </Button>
        </div>
        {isRange ? (
          <div className="grid items-start gap-3 sm:grid-cols-3">
            {text("min")}
            {text("max")}
            {text("step")}
            <label className="flex items-center gap-1.5 text-sm sm:col-span-3">
              <input
                type="checkbox"
                name={control("scale")}
                checked={parameter.log}
                onChange={({ target }) => onChange({ log: target.checked })}
              />
              {t("sweepForm.log")}
            </label>
          </div>
        ) : (
          <TextField
            name={control(kind)}
            kind="values"
            label={t(kind === "value" ? "sweepForm.oneValue" : "sweepForm.values")}
            hint={kind === "values" && t("sweepForm.valuesHint")}
            error={problemOf(control(kind))}
            placeholder={kind === "values" ? "adam, sgd" : undefined}
            value={parameter.values}
            onText={(values) => onChange({ values })}
          />
        )}
        <Conditions
          conditions={conditions}
          others={others}
          control={control("when")}
          error={problemOf(control("when"))}
          onChange={(next) => onChange({ conditions: next })}
        />
      </fieldset>
    </li>
  );
}

interface ConditionsProps {
  conditions: Condition[];
  others: string[];
  control: string;
  error: string | undefined;
  onChange: (conditions: Condition[]) => void;
}

/** Where a parameter exists: only with these values of others. */
function Conditions({ conditions, others, control, error, onChange }: ConditionsProps) {
  const { t } = useTranslation();
  const change = (at: number, patch: Partial<Condition>) =>
    onChange(conditions.map((each, index) => (index === at ? { ...each, ...patch } : each)));
  return (
    <div className="space-y-2 text-sm">
      {conditions.map(({ name, values }, at) => (
        <div key={at} className="flex flex-wrap items-center gap-2">
          <span className="text-muted">{t("sweepForm.onlyIf")}</span>
          <select
            name={control}
            aria-label={t("sweepForm.conditionName")}
            className="control w-auto max-w-52"
            value={name}
            onChange={({ target }) => change(at, { name: target.value })}
          >
            {[...new Set([...(name ? [name] : [""]), ...others])].map((each) => (
              <option key={each} value={each}>
                {each || "–"}
              </option>
            ))}
          </select>
          <span className="text-muted">{t("sweepForm.isOneOf")}</span>
          <input
            aria-label={t("sweepForm.conditionValues")}
            className="control w-auto min-w-0 flex-1 font-mono"
            spellCheck={false}
            autoComplete="off"
            placeholder="sgd"
            value={values}
            onChange={({ target }) => change(at, { values: target.value })}
          />
          <Button
            look="ghost"
            size="icon"
            aria-label={t("sweepForm.removeCondition")}
            onClick={() => onChange(conditions.filter((_, index) => index !== at))}
          >
            <X />
          </Button>
        </div>
      ))}
      {error && <p className="text-bad-ink">{error}</p>}
      {others.length > conditions.length && (
        <button
          type="button"
          className="rounded font-medium text-accent-ink hover:underline"
          onClick={() => onChange([...conditions, { name: others[0] ?? "", values: "" }])}
        >
          {t("sweepForm.addCondition")}
        </button>
      )}
    </div>
  );
}

import { Trash2 } from "lucide-react";
import { type ComponentProps, type ReactNode } from "react";
import { useTranslation } from "react-i18next";
import type { Problem } from "@/api/types";
import { Button } from "@/ui/button";
import { Field } from "@/ui/field";
import { joinProblems } from "@/ui/template-parameters/values";
import { type DraftParameter, PARAMETER_TYPES, type ParameterType } from "./editor";

interface ParameterEditorProps {
  parameters: DraftParameter[];
  problems: Problem[];
  onChange: (parameters: DraftParameter[]) => void;
  onRemove: (parameter: DraftParameter) => void;
}

/** What the users of a template fill in: for each parameter its name, its type, and what may be given. */
export function ParameterEditor({ parameters, problems, onChange, onRemove }: ParameterEditorProps) {
  const { t } = useTranslation();
  if (parameters.length === 0) return <p className="text-sm text-muted">{t("savedTemplate.noneYet")}</p>;
  return (
    <ol className="space-y-4">
      {parameters.map((parameter, index) => (
        <li key={parameter.key} className="rounded-lg border p-3">
          <ParameterCard
            parameter={parameter}
            problem={(part) => joinProblems(problems.filter(({ field }) => field === `parameters.${index}.${part}`))}
            onChange={(part) =>
              onChange(parameters.map((each) => (each.key === parameter.key ? { ...each, ...part } : each)))
            }
            onRemove={() => onRemove(parameter)}
          />
        </li>
      ))}
    </ol>
  );
}

interface ParameterCardProps {
  parameter: DraftParameter;
  problem: (part: string) => string | undefined;
  onChange: (part: Partial<DraftParameter>) => void;
  onRemove: () => void;
}

function ParameterCard({ parameter, problem, onChange, onRemove }: ParameterCardProps) {
  const { t } = useTranslation();
  const { name, type, place, usual } = parameter;
  const number = type === "integer" || type === "number";
  return (
    <div role="group" aria-label={name} className="grid items-start gap-3 sm:grid-cols-2">
      <Field label={t("savedTemplate.parameterName")} error={problem("name")}>
        {(wiring) =>
          place ? (
            <Text {...wiring} className="control font-mono" value={name} onText={(text) => onChange({ name: text })} />
          ) : (
            <Text
              {...wiring}
              className="control bg-sunken font-mono text-muted"
              value={name}
              readOnly
              title={t("savedTemplate.nameFixed")}
            />
          )
        }
      </Field>
      <Field label={t("savedTemplate.type")} error={problem("type")}>
        {(wiring) => (
          <select
            {...wiring}
            className="control"
            value={type}
            onChange={({ target }) => onChange({ type: target.value as ParameterType })}
          >
            {PARAMETER_TYPES.map((each) => (
              <option key={each} value={each}>
                {t(`savedTemplate.typeOf.${each}`)}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field label={t("savedTemplate.label")} error={problem("label")}>
        {(wiring) => (
          <Text
            {...wiring}
            maxLength={100}
            placeholder={name}
            value={parameter.label}
            onText={(text) => onChange({ label: text })}
          />
        )}
      </Field>
      <Field
        label={t("savedTemplate.default")}
        error={problem("default")}
        hint={usual === "" ? t("savedTemplate.defaultHint") : undefined}
      >
        {(wiring) => <Text {...wiring} value={usual} onText={(text) => onChange({ usual: text })} />}
      </Field>
      {number && (
        <>
          <Field label={t("savedTemplate.low")} error={problem("low")}>
            {(wiring) => (
              <Text {...wiring} inputMode="decimal" value={parameter.low} onText={(text) => onChange({ low: text })} />
            )}
          </Field>
          <Field label={t("savedTemplate.high")} error={problem("high")}>
            {(wiring) => (
              <Text
                {...wiring}
                inputMode="decimal"
                value={parameter.high}
                onText={(text) => onChange({ high: text })}
              />
            )}
          </Field>
        </>
      )}
      {type === "choice" && (
        <Wide>
          <Field label={t("savedTemplate.choices")} error={problem("choices")} hint={t("savedTemplate.choicesHint")}>
            {(wiring) => (
              <textarea
                {...wiring}
                rows={3}
                className="control h-auto py-2"
                value={parameter.choices}
                onChange={({ target }) => onChange({ choices: target.value })}
              />
            )}
          </Field>
        </Wide>
      )}
      <Wide>
        <Field label={t("savedTemplate.help")} error={problem("help")}>
          {(wiring) => (
            <Text
              {...wiring}
              maxLength={500}
              placeholder={t("savedTemplate.helpHint")}
              value={parameter.help}
              onText={(text) => onChange({ help: text })}
            />
          )}
        </Field>
      </Wide>
      <Wide>
        <div className="flex justify-between gap-3">
          <span className="font-mono text-xs break-all text-muted">{place?.path}</span>
          <Button
            size="sm"
            look="ghost"
            aria-label={t("savedTemplate.removeOf", { name })}
            title={t("savedTemplate.removeHint")}
            onClick={onRemove}
          >
            <Trash2 />
            {t("savedTemplate.fixValue")}
          </Button>
        </div>
      </Wide>
    </div>
  );
}

const Wide = ({ children }: { children: ReactNode }) => <div className="sm:col-span-2">{children}</div>;

function Text({
  onText,
  className = "control",
  ...input
}: ComponentProps<"input"> & { onText?: (text: string) => void }) {
  return (
    <input
      {...input}
      autoComplete="off"
      spellCheck={false}
      className={className}
      onChange={({ target }) => onText?.(target.value)}
    />
  );
}

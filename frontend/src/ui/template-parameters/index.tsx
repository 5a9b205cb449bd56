import { useQuery } from "@tanstack/react-query";
import { type ComponentProps, useState } from "react";
import { useTranslation } from "react-i18next";
import { datasetsQuery, environmentsQuery } from "@/api/inventory";
import type { Problem, TemplateParameter } from "@/api/types";
import { Callout } from "@/ui/badge";
import { ErrorMessage } from "@/ui/errors";
import { Field } from "@/ui/field";
import { MessageList } from "@/ui/message-list";
import { formatBounds, formatValue, joinProblems, type ValueTexts } from "./values";

/** Environments shown; more are found by searching. */
const MAX_LISTED = 50;

interface ParameterFieldsProps {
  parameters: readonly TemplateParameter[];
  texts: ValueTexts;
  onChange: (name: string, text: string) => void;
  problems: readonly Problem[];
  /** Whether to show that a value is missing where the field was left alone so far. */
  submitted: boolean;
}

/** A form of typed parameters. What is wrong with a value stands at its field. */
export function ParameterFields({ parameters, texts, onChange, problems, submitted }: ParameterFieldsProps) {
  const [touched, setTouched] = useState<ReadonlySet<string>>(new Set());
  return (
    <div className="grid items-start gap-4 sm:grid-cols-2">
      {parameters.map((parameter) => {
        const { name } = parameter;
        const text = texts[name] ?? "";
        const shown = submitted || touched.has(name) || text !== "";
        return (
          <ParameterField
            key={name}
            parameter={parameter}
            text={text}
            error={shown ? joinProblems(problems.filter(({ field }) => field === `values.${name}`)) : undefined}
            onChange={(next) => onChange(name, next)}
            onBlur={() => setTouched((now) => new Set(now).add(name))}
          />
        );
      })}
    </div>
  );
}

interface ParameterFieldProps {
  parameter: TemplateParameter;
  text: string;
  error: string | undefined;
  onChange: (text: string) => void;
  onBlur: () => void;
}

function ParameterField({ parameter, text, error, onChange, onBlur }: ParameterFieldProps) {
  const { t } = useTranslation();
  const { name, label, help, type, default: usual, choices } = parameter;
  const required = usual === null;
  const hint = [
    help,
    formatBounds(parameter),
    !required && formatValue(usual) !== text && formatValue(usual) !== ""
      ? t("parameterForm.usual", { value: formatValue(usual) })
      : "",
  ]
    .filter(Boolean)
    .join(" · ");
  const wide = type === "environments" || (type === "string" && text.length > 60);
  return (
    <Field
      label={required ? `${label} *` : label}
      hint={hint || undefined}
      error={error && <span className="whitespace-pre-line">{error}</span>}
      className={wide ? "sm:col-span-2" : ""}
    >
      {(wiring) => {
        const control = { ...wiring, name, onBlur, className: "control" };
        switch (type) {
          case "boolean":
            return (
              <Choice {...control} value={text} onText={onChange} required={required}>
                <option value="true">{t("parameterForm.yes")}</option>
                <option value="false">{t("parameterForm.no")}</option>
              </Choice>
            );
          case "choice":
            return (
              <Choice {...control} value={text} onText={onChange} required={required}>
                {choices.map((each) => (
                  <option key={each} value={each}>
                    {each}
                  </option>
                ))}
              </Choice>
            );
          case "datasetVersion":
            return <DatasetVersions {...control} value={text} onText={onChange} required={required} />;
          case "environments":
            return <Environments {...wiring} label={label} value={text} onText={onChange} onBlur={onBlur} />;
          default:
            return (
              <input
                {...control}
                value={text}
                autoComplete="off"
                spellCheck={type === "string" ? undefined : false}
                inputMode={type === "integer" ? "numeric" : type === "number" ? "decimal" : undefined}
                onChange={({ target }) => onChange(target.value)}
              />
            );
        }
      }}
    </Field>
  );
}

interface TextControl {
  value: string;
  onText: (text: string) => void;
  required: boolean;
}

/** A list to choose from; nothing is chosen at first where there is no default. */
function Choice({ value, onText, required, children, ...select }: TextControl & ComponentProps<"select">) {
  const { t } = useTranslation();
  return (
    <select {...select} value={value} onChange={({ target }) => onText(target.value)}>
      {(required || value === "") && <option value="">{t("parameterForm.choose")}</option>}
      {children}
    </select>
  );
}

function DatasetVersions(props: TextControl & Omit<ComponentProps<"select">, "value">) {
  const datasets = useQuery(datasetsQuery).data;
  const known = datasets?.some(({ versions }) => versions.some(({ id }) => id === props.value));
  return (
    <Choice {...props}>
      {props.value !== "" && !known && <option value={props.value}>{props.value}</option>}
      {datasets
        ?.filter(({ versions }) => versions.length > 0)
        .map((dataset) => (
          <optgroup key={dataset.id} label={dataset.name}>
            {dataset.versions.map(({ id, name }) => (
              <option key={id} value={id}>
                {dataset.name} · {name}
              </option>
            ))}
          </optgroup>
        ))}
    </Choice>
  );
}

interface EnvironmentsProps extends Omit<TextControl, "required"> {
  id: string;
  label: string;
  "aria-invalid": boolean | undefined;
  "aria-describedby": string | undefined;
  onBlur: () => void;
}

function Environments({ label, value, onText, onBlur, ...wiring }: EnvironmentsProps) {
  const { t } = useTranslation();
  const environments = useQuery(environmentsQuery).data;
  const [search, setSearch] = useState("");
  const chosen = value.split(",").filter(Boolean);
  const text = search.toLowerCase();
  const gone = environments ? chosen.filter((id) => !environments.some((each) => each.id === id)) : [];
  const found = (environments ?? []).filter(({ id, name, zone, gpuType }) =>
    [id, name, zone.name, gpuType].some((each) => each.toLowerCase().includes(text)),
  );
  const toggle = (id: string) =>
    onText((chosen.includes(id) ? chosen.filter((each) => each !== id) : [...chosen, id]).join(","));
  return (
    <div className="space-y-2">
      <input
        {...wiring}
        type="search"
        className="control"
        placeholder={t("environments.search")}
        value={search}
        onBlur={onBlur}
        onChange={({ target }) => setSearch(target.value)}
      />
      <ul aria-label={label} className="max-h-52 divide-y overflow-y-auto rounded-lg border">
        {gone.map((id) => (
          <li key={id}>
            <label className="flex items-center gap-2 px-3 py-1.5 text-sm">
              <input type="checkbox" checked onChange={() => toggle(id)} />
              <span className="min-w-0 flex-1 truncate font-mono">{id}</span>
              <span className="text-xs text-bad-ink">{t("parameterForm.gone")}</span>
            </label>
          </li>
        ))}
        {found.slice(0, MAX_LISTED).map(({ id, name, zone, gpuCount, gpuType }) => (
          <li key={id}>
            <label className="flex items-center gap-2 px-3 py-1.5 text-sm">
              <input type="checkbox" checked={chosen.includes(id)} onChange={() => toggle(id)} />
              <span className="min-w-0 flex-1 truncate">{name}</span>
              <span className="text-xs whitespace-nowrap text-muted">
                {zone.name} · {gpuCount ? `${gpuCount}x ${gpuType}` : t("gpu.none")}
              </span>
            </label>
          </li>
        ))}
        {found.length > MAX_LISTED && (
          <li className="px-3 py-1.5 text-sm text-muted">
            {t("parameterForm.more", { count: found.length - MAX_LISTED })}
          </li>
        )}
      </ul>
      <p className="text-sm text-muted">{t("parameterForm.chosen", { count: chosen.length })}</p>
    </div>
  );
}

interface SaveProblemsProps {
  error: Error | null;
  /** What the platform refused in the request; without any, the error itself is shown. */
  refused: readonly Problem[];
  /** Those of them that have no field in the form. */
  others: readonly Problem[];
}

/** Why a form could not be saved, as far as it does not stand at a field. */
export function SaveProblems({ error, refused, others }: SaveProblemsProps) {
  return (
    <>
      {error && refused.length === 0 && (
        <Callout tone="bad" role="alert">
          <ErrorMessage error={error} />
        </Callout>
      )}
      {others.length > 0 && (
        <div role="alert">
          <MessageList
            notes={others.map((each) => ({
              id: `${each.field}/${each.error}`,
              level: "fail",
              message: each.message,
              hint: each.hint,
            }))}
          />
        </div>
      )}
    </>
  );
}

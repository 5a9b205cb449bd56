import { useQuery } from "@tanstack/react-query";
import { lazy, type ReactNode, Suspense } from "react";
import { useTranslation } from "react-i18next";
import { modelsQuery } from "@/api/inventory";
import { meQuery } from "@/api/session";
import { CHOICES, choicesOf, isNumber, PLAIN, REQUEST } from "@/api/request";
import { withTexts } from "@/i18n";
import { cx } from "@/lib/cx";
import { Field } from "@/ui/field";
import { Fold } from "@/ui/fold";
import type { Draft } from "./draft";
import { FrameworkSelect } from "./framework-fields";
import { useLabels } from "./labels";
import { textOf } from "./options";
import { textFor } from "./problems";
import { SecretVariables } from "./secrets";
import type { SectionProps } from "./section";
import { Spares } from "./spares";

const CodeFields = lazy(() => withTexts(import("./code"), "code"));

const FIRST = ["totalSteps", "batchSize", "gradientAccumulationSteps", "learningRate", "dtype"];

/** What the model uses where nothing is typed. */
function placeholders(defaults: Record<string, unknown> = {}): Record<string, string> {
  const plain = Object.entries(defaults).filter(([, value]) => ["number", "string", "boolean"].includes(typeof value));
  return Object.fromEntries(plain.map(([name, value]) => [name, String(value)]));
}

const FIELDS = [
  "hyperparameters",
  "code",
  "entrypoint",
  "env",
  "secretEnv",
  "spareEnvironmentIds",
  ...PLAIN,
  ...CHOICES,
  "preemptible",
  "projectId",
  "distributedConfig.masterPort",
  "distributedConfig.backend",
];

interface AdvancedProps extends SectionProps {
  /** Of the chosen framework, where there is no distributed panel to hold them. */
  framework: ReactNode;
}

export function Advanced({ framework, ...section }: AdvancedProps) {
  const { t } = useTranslation();
  const { draft, problems } = section;
  const wrong = FIELDS.some((field) => textFor(problems, field));
  return (
    <Fold
      className="rounded-xl border bg-surface shadow-xs"
      summaryClassName="px-4 py-3 font-semibold"
      wanted={wrong}
      title={
        <>
          {t("create.advanced")}
          <span className="truncate text-sm font-normal text-muted">{t("create.advancedHint")}</span>
        </>
      }
    >
      <div className="space-y-5 p-4 pt-1">
        <Hyperparameters {...section} />
        <Group title={t("create.scriptGroup")}>
          <Suspense>
            <CodeFields {...section} />
          </Suspense>
          <Text
            {...section}
            field="script"
            control="entrypoint.script"
            errors="entrypoint"
            label={t("create.script")}
            hint={t("create.scriptHint")}
            placeholder="train.py"
            mono
          />
          <Lines
            {...section}
            field="args"
            control="entrypoint.args"
            label={t("create.args")}
            hint={t("create.argsHint")}
          />
          <Lines {...section} field="env" control="env" label={t("create.env")} hint={t("create.envHint")} />
          <SecretVariables {...section} />
        </Group>
        <Group title={t("create.runGroup")}>
          {PLAIN.map((name) => (
            <Plain key={name} {...section} name={name} />
          ))}
          {CHOICES.map((name) => (
            <Choice key={name} {...section} name={name} />
          ))}
          <Field
            label={t("create.preemptible")}
            hint={t("create.preemptibleHint")}
            error={textFor(problems, "preemptible")}
          >
            {(wiring) => (
              <select
                {...wiring}
                name="preemptible"
                className="control"
                value={String(draft.preemptible)}
                onChange={({ target }) => section.onChange({ preemptible: target.value === "true" })}
              >
                <option value="false">{t("create.no")}</option>
                <option value="true">{t("create.yes")}</option>
              </select>
            )}
          </Field>
          <ProjectOfTask {...section} />
          {draft.selected.length > 1 && <Network {...section} />}
        </Group>
        <Spares {...section} />
        {draft.selected.length === 1 && framework && (
          <div className="space-y-4">
            <div className="grid gap-4 sm:grid-cols-2">
              <FrameworkSelect {...section} label={t("create.singleFramework")} />
            </div>
            {framework}
          </div>
        )}
      </div>
    </Fold>
  );
}

function Group({ title, children }: { title: string; children: ReactNode }) {
  return (
    <fieldset>
      <legend className="mb-2 text-sm font-semibold text-muted">{title}</legend>
      <div className="grid gap-4 sm:grid-cols-2 xl:grid-cols-3">{children}</div>
    </fieldset>
  );
}

/** The usual ones, what else the model knows, and what a cloned task set. */
function Hyperparameters({ draft, problems, onChange }: SectionProps) {
  const { t } = useTranslation();
  const labels = useLabels();
  const models = useQuery(modelsQuery).data ?? [];
  const defaults = placeholders(models.find((each) => each.id === draft.modelId)?.defaults);
  const names = [...new Set([...FIRST, ...Object.keys(defaults), ...Object.keys(draft.hyperparameters)])];
  return (
    <Group title={t("create.hyperparameters")}>
      {names.map((name) => (
        <Field key={name} label={labels.hyperparameter(name)} error={textFor(problems, `hyperparameters.${name}`)}>
          {(wiring) => (
            <input
              {...wiring}
              name={`hyperparameters.${name}`}
              className="control"
              autoComplete="off"
              inputMode={name === "dtype" ? "text" : "decimal"}
              placeholder={defaults[name]}
              value={draft.hyperparameters[name] ?? ""}
              onChange={({ target }) =>
                onChange({ hyperparameters: { ...draft.hyperparameters, [name]: target.value } })
              }
            />
          )}
        </Field>
      ))}
    </Group>
  );
}

/** One of a few values; empty leaves it at the default. */
function Choice({ draft, problems, onChange, name }: SectionProps & { name: string }) {
  const { t } = useTranslation();
  const labels = useLabels();
  const values = choicesOf(REQUEST[name]) ?? [];
  const usual = REQUEST[name]?.default;
  return (
    <Field label={labels.field(name)} hint={labels.hint(name)} error={textFor(problems, name)}>
      {(wiring) => (
        <select
          {...wiring}
          name={name}
          className="control"
          value={draft.plain[name] ?? ""}
          onChange={({ target }) => onChange({ plain: { ...draft.plain, [name]: target.value } })}
        >
          <option value="">{t("create.defaultValue", { value: labels.choice(name, textOf(usual)) })}</option>
          {values.map((value) => (
            <option key={value} value={value}>
              {labels.choice(name, value)}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

/** Only where it is not clear whose task it is. */
function ProjectOfTask({ draft, problems, onChange }: SectionProps) {
  const { t } = useTranslation();
  const mine = useQuery(meQuery).data?.projects ?? [];
  if (mine.length < 2 && !draft.projectId) return null;
  return (
    <Field label={t("create.project")} hint={t("create.projectHint")} error={textFor(problems, "projectId")}>
      {(wiring) => (
        <select
          {...wiring}
          name="projectId"
          className="control"
          value={draft.projectId}
          onChange={({ target }) => onChange({ projectId: target.value })}
        >
          <option value="">{t("create.projectOfEnvironments")}</option>
          {mine.map(({ id, name }) => (
            <option key={id} value={id}>
              {name}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

function Network({ draft, problems, onChange }: SectionProps) {
  const { t } = useTranslation();
  return (
    <>
      <Field label={t("create.backend")} error={textFor(problems, "distributedConfig.backend")}>
        {(wiring) => (
          <select
            {...wiring}
            name="distributedConfig.backend"
            className="control"
            value={draft.backend}
            onChange={({ target }) => onChange({ backend: target.value })}
          >
            <option value="">{t("create.automatic")}</option>
            <option value="nccl">NCCL</option>
            <option value="gloo">Gloo</option>
          </select>
        )}
      </Field>
      <Field label={t("create.masterPort")} error={textFor(problems, "distributedConfig.masterPort")}>
        {(wiring) => (
          <input
            {...wiring}
            name="distributedConfig.masterPort"
            className="control"
            inputMode="numeric"
            autoComplete="off"
            placeholder={t("create.automatic")}
            value={draft.masterPort}
            onChange={({ target }) => onChange({ masterPort: target.value })}
          />
        )}
      </Field>
    </>
  );
}

/** A single value of the request, as it is declared there. */
function Plain({ draft, problems, onChange, name }: SectionProps & { name: string }) {
  const labels = useLabels();
  const rule = REQUEST[name];
  return (
    <Field label={labels.field(name)} hint={labels.hint(name)} error={textFor(problems, name)}>
      {(wiring) => (
        <input
          {...wiring}
          name={name}
          className={cx("control", !isNumber(rule) && "font-mono")}
          autoComplete="off"
          inputMode={isNumber(rule) ? "numeric" : "text"}
          placeholder={textOf(rule?.default ?? "")}
          value={draft.plain[name] ?? ""}
          onChange={({ target }) => onChange({ plain: { ...draft.plain, [name]: target.value } })}
        />
      )}
    </Field>
  );
}

interface TextProps extends SectionProps {
  field: "script" | "args" | "env";
  label: string;
  hint: string;
  /** The server's name for it, where that is another. */
  control?: string;
  /** What problems to show, where that is more than the control's own. */
  errors?: keyof Draft | "entrypoint";
  placeholder?: string;
  mono?: boolean;
}

function Text({
  draft,
  problems,
  onChange,
  field,
  label,
  hint,
  control = field,
  errors,
  placeholder,
  mono,
}: TextProps) {
  return (
    <Field label={label} hint={hint} error={textFor(problems, errors ?? control)}>
      {(wiring) => (
        <input
          {...wiring}
          name={control}
          className={cx("control", mono && "font-mono")}
          autoComplete="off"
          inputMode={mono ? "text" : "numeric"}
          placeholder={placeholder}
          value={draft[field]}
          onChange={({ target }) => onChange({ [field]: target.value })}
        />
      )}
    </Field>
  );
}

function Lines({ draft, problems, onChange, field, label, hint, control = field }: TextProps) {
  return (
    <Field label={label} hint={hint} error={textFor(problems, control)}>
      {(wiring) => (
        <textarea
          {...wiring}
          name={control}
          rows={3}
          spellCheck={false}
          className="control h-auto py-2 font-mono"
          value={draft[field]}
          onChange={({ target }) => onChange({ [field]: target.value })}
        />
      )}
    </Field>
  );
}

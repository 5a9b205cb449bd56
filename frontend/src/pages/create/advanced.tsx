import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { modelsQuery } from "@/api/inventory";
import { meQuery } from "@/api/session";
import { CHOICE_FIELDS, getChoices, isNumber, TEXT_FIELDS, REQUEST, getUnitSeconds } from "@/api/request-schema";
import { cx } from "@/lib/cx";
import { formatDurationInput } from "@/lib/parse-input";
import { Field } from "@/ui/field";
import { Collapsible } from "@/ui/collapsible";
import { Tabs } from "@/ui/tabs";
import { FrameworkSelect } from "./framework-fields";
import { useLabels } from "./labels";
import { formatOption } from "./options";
import { getProblemText } from "./problems";
import { SecretVariables } from "./secret-variables";
import type { SectionProps } from "./section-props";
import { SpareEnvironments } from "./spare-environments";
import { MonospaceTextarea } from "./monospace-inputs";

const FIRST = ["totalSteps", "batchSize", "gradientAccumulationSteps", "learningRate", "dtype"];

/** Returns the model's defaults, which apply to empty fields. */
function getPlaceholders(defaults: Record<string, unknown> = {}): Record<string, string> {
  const plain = Object.entries(defaults).filter(([, value]) => ["number", "string", "boolean"].includes(typeof value));
  return Object.fromEntries(plain.map(([name, value]) => [name, String(value)]));
}

/** Fields of the request by tab. All others are in the tab about failures. */
const WAITING = ["priority", "minRunSeconds", "maxRunSeconds", "whenInUse"];
const NETWORK = ["distributedConfig.masterPort", "distributedConfig.backend"];
const listFieldsOfTab = (names: string[], waits: boolean) => names.filter((name) => WAITING.includes(name) === waits);

interface AdvancedProps extends SectionProps {
  /** The framework's fields, unless the panel for distributed training shows them. */
  framework: ReactNode;
}

interface AdvancedSection {
  id: "hyperparameters" | "variables" | "waiting" | "failures" | "network" | "framework";
  /** Fields whose problems the tab counts. */
  fields: string[];
  content: ReactNode;
}

export function Advanced({ framework, ...section }: AdvancedProps) {
  const { t } = useTranslation();
  const { draft, problems } = section;
  const alone = draft.selected.length === 1 && framework;
  const values = (waits: boolean) => (
    <>
      {listFieldsOfTab(TEXT_FIELDS, waits).map((name) => (
        <TextFieldOfRequest key={name} {...section} name={name} />
      ))}
      {listFieldsOfTab(CHOICE_FIELDS, waits).map((name) => (
        <Choice key={name} {...section} name={name} />
      ))}
    </>
  );
  const parts: AdvancedSection[] = [
    { id: "hyperparameters", fields: ["hyperparameters"], content: <Hyperparameters {...section} /> },
    {
      id: "variables",
      fields: ["env", "secretEnv"],
      content: (
        <Grid>
          <MonospaceTextarea {...section} field="env" label={t("create.env")} hint={t("create.envHint")} />
          <SecretVariables {...section} />
        </Grid>
      ),
    },
    {
      id: "waiting",
      fields: [...WAITING, "preemptible", "projectId"],
      content: (
        <Grid>
          {values(true)}
          <Preemptible {...section} />
          <ProjectOfTask {...section} />
        </Grid>
      ),
    },
    {
      id: "failures",
      fields: [...listFieldsOfTab([...TEXT_FIELDS, ...CHOICE_FIELDS], false), "spareEnvironmentIds"],
      content: (
        <div className="space-y-5">
          <Grid>{values(false)}</Grid>
          <SpareEnvironments {...section} />
        </div>
      ),
    },
    ...(draft.selected.length > 1
      ? [
          {
            id: "network" as const,
            fields: NETWORK,
            content: (
              <Grid>
                <Network {...section} />
              </Grid>
            ),
          },
        ]
      : []),
    ...(alone
      ? [
          {
            id: "framework" as const,
            fields: ["framework", "strategy", "options"].map((name) => `distributedConfig.${name}`),
            content: (
              <div className="space-y-4">
                <div className="grid gap-4 sm:grid-cols-2">
                  <FrameworkSelect {...section} label={t("create.singleFramework")} />
                </div>
                {framework}
              </div>
            ),
          },
        ]
      : []),
  ];
  const wrongIn = (fields: string[]) => fields.filter((field) => getProblemText(problems, field)).length;
  return (
    <Collapsible
      className="rounded-xl border bg-surface shadow-xs"
      summaryClassName="px-4 py-3 font-semibold"
      wanted={parts.some(({ fields }) => wrongIn(fields) > 0)}
      title={
        <>
          {t("create.advanced")}
          <span className="truncate text-sm font-normal text-muted">{t("create.advancedHint")}</span>
        </>
      }
    >
      <Tabs
        keep
        label={t("create.advanced")}
        tabs={parts.map(({ id, fields, content }) => ({
          id,
          label: <TabLabel title={t(`create.tab.${id}`)} wrong={wrongIn(fields)} />,
          content,
        }))}
      />
    </Collapsible>
  );
}

/** A tab's name with the number of wrong fields. */
function TabLabel({ title, wrong }: { title: string; wrong: number }) {
  const { t } = useTranslation();
  return (
    <>
      {title}
      {wrong > 0 && (
        <span
          className="ml-1.5 rounded-full bg-bad-soft px-1.5 text-xs text-bad-ink"
          title={t("create.refused", { count: wrong })}
        >
          {wrong}
        </span>
      )}
    </>
  );
}

const Grid = ({ children }: { children: ReactNode }) => (
  <div className="grid gap-4 sm:grid-cols-2 xl:grid-cols-3">{children}</div>
);

function Preemptible({ draft, problems, onChange }: SectionProps) {
  const { t } = useTranslation();
  return (
    <Field
      label={t("create.preemptible")}
      hint={t("create.preemptibleHint")}
      error={getProblemText(problems, "preemptible")}
    >
      {(wiring) => (
        <select
          {...wiring}
          name="preemptible"
          className="control"
          value={String(draft.preemptible)}
          onChange={({ target }) => onChange({ preemptible: target.value === "true" })}
        >
          <option value="false">{t("create.no")}</option>
          <option value="true">{t("create.yes")}</option>
        </select>
      )}
    </Field>
  );
}

/** The usual hyperparameters, further ones of the model, and those of a cloned task. */
function Hyperparameters({ draft, problems, onChange }: SectionProps) {
  const labels = useLabels();
  const models = useQuery(modelsQuery).data ?? [];
  const defaults = getPlaceholders(models.find((each) => each.id === draft.modelId)?.defaults);
  const names = [...new Set([...FIRST, ...Object.keys(defaults), ...Object.keys(draft.hyperparameters)])];
  return (
    <Grid>
      {names.map((name) => (
        <Field
          key={name}
          label={labels.hyperparameter(name)}
          error={getProblemText(problems, `hyperparameters.${name}`)}
        >
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
    </Grid>
  );
}

/** One of a few values; empty means the default. */
function Choice({ draft, problems, onChange, name }: SectionProps & { name: string }) {
  const { t } = useTranslation();
  const labels = useLabels();
  const values = getChoices(REQUEST[name]) ?? [];
  const usual = REQUEST[name]?.default;
  return (
    <Field label={labels.field(name)} hint={labels.hint(name)} error={getProblemText(problems, name)}>
      {(wiring) => (
        <select
          {...wiring}
          name={name}
          className="control"
          value={draft.plain[name] ?? ""}
          onChange={({ target }) => onChange({ plain: { ...draft.plain, [name]: target.value } })}
        >
          <option value="">{t("create.defaultValue", { value: labels.choice(name, formatOption(usual)) })}</option>
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

/** Shown only if the user has several projects. */
function ProjectOfTask({ draft, problems, onChange }: SectionProps) {
  const { t } = useTranslation();
  const mine = useQuery(meQuery).data?.projects ?? [];
  if (mine.length < 2 && !draft.projectId) return null;
  return (
    <Field label={t("create.project")} hint={t("create.projectHint")} error={getProblemText(problems, "projectId")}>
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
      <Field label={t("create.backend")} error={getProblemText(problems, "distributedConfig.backend")}>
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
      <Field label={t("create.masterPort")} error={getProblemText(problems, "distributedConfig.masterPort")}>
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

/** A field of the request that is a single line of text. */
function TextFieldOfRequest({ draft, problems, onChange, name }: SectionProps & { name: string }) {
  const labels = useLabels();
  const rule = REQUEST[name];
  const unit = getUnitSeconds(name);
  const isTyped = isNumber(rule) && !unit;
  const usual = rule?.default;
  return (
    <Field label={labels.field(name)} hint={labels.hint(name)} error={getProblemText(problems, name)}>
      {(wiring) => (
        <input
          {...wiring}
          name={name}
          className={cx("control", !isNumber(rule) && "font-mono")}
          autoComplete="off"
          inputMode={isTyped ? "numeric" : "text"}
          placeholder={unit && typeof usual === "number" ? formatDurationInput(usual, unit) : formatOption(usual ?? "")}
          value={draft.plain[name] ?? ""}
          onChange={({ target }) => onChange({ plain: { ...draft.plain, [name]: target.value } })}
        />
      )}
    </Field>
  );
}

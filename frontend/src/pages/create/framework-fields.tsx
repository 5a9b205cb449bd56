import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { environmentsQuery, frameworksQuery } from "@/api/inventory";
import type { Framework, Preview } from "@/api/types";
import { Button } from "@/ui/button";
import { Field } from "@/ui/field";
import { Collapsible } from "@/ui/collapsible";
import { DEFAULT_FRAMEWORK, updateTuning, getTuning } from "./draft";
import { useLabels } from "./labels";
import { OptionField } from "./option-field";
import { findFramework, getOptionRules, listStrategyFields } from "./options";
import { getProblemText } from "./problems";
import type { SectionProps } from "./section-props";

/** Returns whether the chosen environments' cluster (or any, without a choice) supports a framework. */
function isSupportedOn(framework: Framework, cluster: string | undefined): boolean {
  const existing = framework.clusters.find(({ clusterId }) => clusterId === cluster);
  return existing ? existing.available !== false : framework.available;
}

/**
 * Selects a framework. One that is not installed can be selected: the preview then shows the command that installs it.
 */
export function FrameworkSelect({ label, draft, problems, onChange }: SectionProps & { label: string }) {
  const { t } = useTranslation();
  const frameworks = useQuery(frameworksQuery).data ?? [];
  const framework = findFramework(frameworks, draft.framework);
  const cluster = useQuery(environmentsQuery).data?.find(({ id }) => id === draft.selected[0])?.clusterId;
  const alone = draft.selected.length === 1;
  const nameOf = ({ value, label }: Framework) =>
    alone && value === DEFAULT_FRAMEWORK ? `${t("create.single")} · ${label}` : label;
  return (
    <Field label={label} hint={framework?.description} error={getProblemText(problems, "distributedConfig.framework")}>
      {(wiring) => (
        <select
          {...wiring}
          name="distributedConfig.framework"
          className="control"
          value={framework?.value ?? draft.framework}
          onChange={({ target }) => onChange({ framework: target.value })}
        >
          {!framework && <option value={draft.framework}>{draft.framework}</option>}
          {frameworks.map((each) => (
            <option key={each.value} value={each.value}>
              {isSupportedOn(each, cluster) ? nameOf(each) : t("create.notInstalled", { framework: each.label })}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

interface FrameworkFieldsProps extends SectionProps {
  preview: Preview | undefined;
  worldSize: number;
}

/** Degrees of parallelism and options of the framework, built from `GET /frameworks`. */
export function FrameworkFields({ draft, problems, onChange, preview, worldSize }: FrameworkFieldsProps) {
  const { t } = useTranslation();
  const proposal = preview?.proposal;
  const labels = useLabels();
  const frameworks = useQuery(frameworksQuery).data ?? [];
  const framework = findFramework(frameworks, draft.framework);
  const { strategy, options } = getTuning(draft);
  const degrees = [...new Set<string>([...listStrategyFields(framework), ...Object.keys(strategy)])];
  const rules = Object.entries(getOptionRules(framework));
  const open =
    Object.values(options).some(Boolean) || getProblemText(problems, "distributedConfig.options") !== undefined;
  const placeholder = (name: string) => {
    const proposed = proposal?.strategy[name] ?? (degrees.length === 1 ? worldSize : undefined);
    return proposed === undefined ? t("create.automatic") : t("create.proposedValue", { value: proposed });
  };
  return (
    <>
      {degrees.length > 0 && (
        <fieldset>
          <legend className={degrees.length > 1 ? "mb-1.5 text-sm font-semibold" : "sr-only"}>
            {t("create.strategy")}
          </legend>
          <div className="grid gap-4 sm:grid-cols-3">
            {degrees.map((name) => (
              <Field
                key={name}
                label={labels.strategy(name)}
                error={getProblemText(problems, `distributedConfig.strategy.${name}`)}
              >
                {(wiring) => (
                  <input
                    {...wiring}
                    name={`distributedConfig.strategy.${name}`}
                    className="control"
                    inputMode="numeric"
                    autoComplete="off"
                    placeholder={placeholder(name)}
                    value={strategy[name] ?? ""}
                    onChange={({ target }) =>
                      onChange(updateTuning(draft, { strategy: { ...strategy, [name]: target.value } }))
                    }
                  />
                )}
              </Field>
            ))}
          </div>
          {renderOwnProblem(problems, "distributedConfig.strategy")}
          <Splits
            splits={preview?.splits ?? []}
            onTake={(split) => onChange(updateTuning(draft, { strategy: split }))}
          />
        </fieldset>
      )}
      {rules.length > 0 && (
        <Collapsible
          title={t("create.options", { count: rules.length })}
          wanted={open}
          summaryClassName="w-fit text-sm font-medium"
        >
          <div className="mt-3 grid gap-4 sm:grid-cols-2 xl:grid-cols-3">
            {rules.map(([name, rule]) => (
              <OptionField
                key={name}
                name={name}
                rule={rule}
                value={options[name] ?? ""}
                proposed={proposal?.options[name]}
                error={getProblemText(problems, `distributedConfig.options.${name}`)}
                onChange={(value) => onChange(updateTuning(draft, { options: { ...options, [name]: value } }))}
              />
            ))}
          </div>
        </Collapsible>
      )}
    </>
  );
}

interface SplitsProps {
  splits: Preview["splits"];
  onTake: (strategy: Record<string, string>) => void;
}

/** Valid strategies near an invalid one. */
function Splits({ splits, onTake }: SplitsProps) {
  const { t } = useTranslation();
  const labels = useLabels();
  if (splits.length === 0) return null;
  return (
    <div className="mt-2 flex flex-wrap items-center gap-2">
      <span className="text-sm font-medium">{t("create.splits")}</span>
      {splits.map((split) => {
        const degrees = Object.entries(split).map(([name, degree]) => `${labels.strategy(name)} ${degree}`);
        const texts = Object.fromEntries(Object.entries(split).map(([name, degree]) => [name, String(degree)]));
        return (
          <Button key={degrees.join()} size="sm" className="tabular-nums" onClick={() => onTake(texts)}>
            {degrees.join(" × ")}
          </Button>
        );
      })}
    </div>
  );
}

/** Returns a problem of a whole field, not of its parts. */
function renderOwnProblem(problems: SectionProps["problems"], field: string) {
  const found = problems.get(field);
  return found && <p className="mt-1.5 text-sm text-bad-ink">{found.map(({ message }) => message).join(" ")}</p>;
}

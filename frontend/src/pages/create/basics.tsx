import { useQuery } from "@tanstack/react-query";
import { lazy, type ReactNode, Suspense } from "react";
import { useTranslation } from "react-i18next";
import { datasetsQuery, modelsQuery } from "@/api/inventory";
import { withPageTexts } from "@/i18n";
import { Card } from "@/ui/card";
import { Loading } from "@/ui/errors";
import { Field } from "@/ui/field";
import { type Draft, usesOwnScript, DEFAULT_LAUNCH_MODE, NEW_ENVIRONMENTS_MODE } from "./draft";
import { getProblemText } from "./problems";
import { RadioGroup } from "./radio-group";
import type { ResumeProposal } from "./resume-fields";
import type { SectionProps } from "./section-props";
import { fillDefaultChoices, findUsableVersion } from "./default-choices";

const Script = lazy(() => withPageTexts(import("./script-fields")));

const NONE = { datasetId: "", datasetVersionId: "", modelId: "" };

interface BasicsProps extends SectionProps {
  missingArguments: string[] | undefined;
  resumeProposal: ResumeProposal | undefined;
}

export function Basics({ draft, problems, onChange, missingArguments, resumeProposal }: BasicsProps) {
  const { t } = useTranslation();
  const datasets = useQuery(datasetsQuery).data ?? [];
  const models = useQuery(modelsQuery).data ?? [];
  const versions = datasets.find((each) => each.id === draft.datasetId)?.versions ?? [];
  const preparing = versions.find((each) => each.id === draft.datasetVersionId)?.status === "preparing";
  const unchosen = (asked: string) => (usesOwnScript(draft) ? t("create.withoutOne") : asked);
  const label = (name: string) => (usesOwnScript(draft) ? t("create.optional", { name }) : name);
  /** A script needs no dataset; a model does. */
  const choose = (what: Draft["what"]) =>
    onChange({ what, ...(what === "model" ? fillDefaultChoices(datasets, models, draft) : NONE) });
  const chooseDataset = (datasetId: string) => {
    const chosen = datasets.find((each) => each.id === datasetId);
    onChange({ datasetId, datasetVersionId: findUsableVersion(chosen) ?? "" });
  };
  return (
    <Card title={t("create.basics")}>
      <div className="grid gap-4 sm:grid-cols-2">
        <Field label={t("create.taskName")} error={getProblemText(problems, "taskName")} className="sm:col-span-2">
          {(wiring) => (
            <input
              {...wiring}
              name="taskName"
              className="control"
              autoComplete="off"
              placeholder={t("create.taskNamePlaceholder")}
              value={draft.taskName}
              onChange={({ target }) => onChange({ taskName: target.value })}
            />
          )}
        </Field>
        <Field
          label={t("create.tags")}
          hint={t("create.tagsHint")}
          error={getProblemText(problems, "tags")}
          className="sm:col-span-2"
        >
          {(wiring) => (
            <input
              {...wiring}
              name="tags"
              className="control"
              autoComplete="off"
              placeholder={t("create.tagsPlaceholder")}
              value={draft.tags}
              onChange={({ target }) => onChange({ tags: target.value })}
            />
          )}
        </Field>
        <RadioGroup
          legend={t("create.what")}
          name="what"
          value={draft.what}
          options={[
            { value: "model", label: t("create.whatModel") },
            { value: "script", label: t("create.whatScript") },
          ]}
          className="sm:col-span-2 sm:grid sm:grid-cols-2 sm:gap-x-4 sm:[&>legend]:col-span-2"
          onChange={choose}
        />
        {usesOwnScript(draft) && (
          <Suspense fallback={<Loading />}>
            <Script
              draft={draft}
              problems={problems}
              onChange={onChange}
              missingArguments={missingArguments}
              resumeProposal={resumeProposal}
            />
          </Suspense>
        )}
        <Field label={label(t("create.dataset"))} error={getProblemText(problems, "datasetId")}>
          {(wiring) => (
            <Select {...wiring} name="datasetId" value={draft.datasetId} onChange={chooseDataset}>
              <Options none={unchosen(t("create.chooseDataset"))} value={draft.datasetId} items={datasets} />
            </Select>
          )}
        </Field>
        <Field
          label={label(t("create.version"))}
          hint={preparing && t("create.preparingHint")}
          error={getProblemText(problems, "datasetVersionId")}
        >
          {(wiring) => (
            <Select
              {...wiring}
              name="datasetVersionId"
              value={draft.datasetVersionId}
              disabled={versions.length === 0 && !draft.datasetVersionId}
              onChange={(datasetVersionId) => onChange({ datasetVersionId })}
            >
              <Options
                none={unchosen(t("create.chooseVersion"))}
                value={draft.datasetVersionId}
                items={versions.map(({ id, name, status }) => ({
                  id,
                  name: status === "ready" ? name : `${name} (${t(`create.versionStatus.${status}`)})`,
                  disabled: status === "failed",
                }))}
              />
            </Select>
          )}
        </Field>
        <Field label={label(t("create.model"))} error={getProblemText(problems, "modelId")}>
          {(wiring) => (
            <Select {...wiring} name="modelId" value={draft.modelId} onChange={(modelId) => onChange({ modelId })}>
              <Options none={unchosen(t("create.chooseModel"))} value={draft.modelId} items={models} />
            </Select>
          )}
        </Field>
        <RadioGroup
          legend={t("create.launchMode")}
          name="launchMode"
          value={draft.launchMode}
          options={[
            { value: DEFAULT_LAUNCH_MODE, label: t("create.existing") },
            { value: NEW_ENVIRONMENTS_MODE, label: t("create.newMode") },
          ]}
          error={getProblemText(problems, "launchMode")}
          onChange={(launchMode) => onChange({ launchMode })}
        />
      </div>
    </Card>
  );
}

interface SelectProps {
  id: string;
  name: string;
  value: string;
  disabled?: boolean;
  "aria-invalid": boolean | undefined;
  "aria-describedby": string | undefined;
  onChange: (value: string) => void;
  children: ReactNode;
}

function Select({ onChange, ...rest }: SelectProps) {
  return <select {...rest} className="control" onChange={({ target }) => onChange(target.value)} />;
}

interface OptionsProps {
  none: string;
  value: string;
  items: { id: string; name: string; disabled?: boolean }[];
}

/** The options, after one for "none" and one for a value that is not on offer. */
function Options({ none, value, items }: OptionsProps) {
  return (
    <>
      <option value="">{none}</option>
      {value && !items.some(({ id }) => id === value) && <option value={value}>{value}</option>}
      {items.map(({ id, name, disabled }) => (
        <option key={id} value={id} disabled={disabled}>
          {name}
        </option>
      ))}
    </>
  );
}

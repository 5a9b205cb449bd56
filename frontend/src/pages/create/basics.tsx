import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useId } from "react";
import { useTranslation } from "react-i18next";
import { datasetsQuery, modelsQuery } from "@/api/inventory";
import { cx } from "@/lib/cx";
import { Card } from "@/ui/card";
import { Field } from "@/ui/field";
import { hasScript, LAUNCH_MODE, NEW } from "./draft";
import { textFor } from "./problems";
import type { SectionProps } from "./section";
import { usableVersion } from "./versions";

export function Basics({ draft, problems, onChange }: SectionProps) {
  const { t } = useTranslation();
  const datasets = useQuery(datasetsQuery).data ?? [];
  const models = useQuery(modelsQuery).data ?? [];
  const versions = datasets.find((each) => each.id === draft.datasetId)?.versions ?? [];
  const preparing = versions.find((each) => each.id === draft.datasetVersionId)?.status === "preparing";
  const unchosen = (asked: string) => (hasScript(draft) ? t("create.withoutOne") : asked);
  const chooseDataset = (datasetId: string) => {
    const chosen = datasets.find((each) => each.id === datasetId);
    onChange({ datasetId, datasetVersionId: usableVersion(chosen) ?? "" });
  };
  return (
    <Card title={t("create.basics")}>
      <div className="grid gap-4 sm:grid-cols-2">
        <Field label={t("create.taskName")} error={textFor(problems, "taskName")} className="sm:col-span-2">
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
        <Field label={t("create.dataset")} error={textFor(problems, "datasetId")}>
          {(wiring) => (
            <Select {...wiring} name="datasetId" value={draft.datasetId} onChange={chooseDataset}>
              <Options none={unchosen(t("create.chooseDataset"))} value={draft.datasetId} items={datasets} />
            </Select>
          )}
        </Field>
        <Field
          label={t("create.version")}
          hint={preparing && t("create.preparingHint")}
          error={textFor(problems, "datasetVersionId")}
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
        <Field label={t("create.model")} error={textFor(problems, "modelId")}>
          {(wiring) => (
            <Select {...wiring} name="modelId" value={draft.modelId} onChange={(modelId) => onChange({ modelId })}>
              <Options none={unchosen(t("create.chooseModel"))} value={draft.modelId} items={models} />
            </Select>
          )}
        </Field>
        <LaunchMode draft={draft} problems={problems} onChange={onChange} />
      </div>
    </Card>
  );
}

/** What a cloned request names beyond them is left unticked, for the server to refuse. */
function LaunchMode({ draft, problems, onChange }: SectionProps) {
  const { t } = useTranslation();
  const error = textFor(problems, "launchMode");
  const id = useId();
  return (
    <fieldset className="min-w-0 space-y-1.5" aria-describedby={error && id}>
      <legend className="text-sm font-medium">{t("create.launchMode")}</legend>
      {([LAUNCH_MODE, NEW] as const).map((mode) => (
        <label
          key={mode}
          className={cx(
            "flex min-h-9 items-center gap-2 rounded-lg border px-3 py-1.5 text-sm has-focus-visible:outline-2 has-focus-visible:outline-offset-2 has-focus-visible:outline-accent-line",
            draft.launchMode === mode && "border-accent-line bg-accent-soft",
          )}
        >
          <input
            type="radio"
            name="launchMode"
            className="size-4 shrink-0 accent-accent outline-none"
            checked={draft.launchMode === mode}
            onChange={() => onChange({ launchMode: mode })}
          />
          {t(mode === NEW ? "create.newMode" : "create.existing")}
        </label>
      ))}
      {error && (
        <p id={id} className="text-sm text-bad-ink">
          {error}
        </p>
      )}
    </fieldset>
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

/** With a first one for "not chosen", and one for what was chosen elsewhere and is not offered here. */
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

import { useQueryClient } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import { addDataset, addVersion, invalidateDatasets } from "@/api/catalog";
import { isMaintainer } from "@/api/session";
import type { Dataset, Me } from "@/api/types";
import { Button } from "@/ui/button";
import { Field } from "@/ui/field";
import { FormDialog, TextField } from "@/ui/form-dialog";

const FIELDS = ["name", "path", "description", "projectId"] as const;

/** Shown to maintainers of a project. Only administrators can add a dataset for all projects. */
export function AddDataset({ me }: { me: Me }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const projects = me.projects.filter(({ id }) => isMaintainer(me, id));
  const add = async ({ name = "", path = "", description, projectId }: Record<string, string>) => {
    await addDataset({ name, path, projectId: projectId || null, ...(description && { description }) });
    await invalidateDatasets(client);
  };
  return (
    <FormDialog
      title={t("datasets.add")}
      description={t("datasets.addHint")}
      submit={t("datasets.add")}
      fields={FIELDS}
      onSubmit={add}
      trigger={
        <Button look="primary">
          <Plus />
          {t("datasets.add")}
        </Button>
      }
    >
      {(problem) => (
        <>
          <TextField name="name" label={t("datasets.name")} error={problem("name")} required />
          <PathField error={problem("path")} />
          <TextField name="description" label={t("datasets.description")} error={problem("description")} />
          <Field label={t("datasets.project")} error={problem("projectId")}>
            {(wiring) => (
              <select {...wiring} name="projectId" className="control">
                {projects.map(({ id, name }) => (
                  <option key={id} value={id}>
                    {name}
                  </option>
                ))}
                {me.isAdministrator && <option value="">{t("datasets.shared")}</option>}
              </select>
            )}
          </Field>
        </>
      )}
    </FormDialog>
  );
}

export function AddVersion({ dataset }: { dataset: Dataset }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const add = async ({ path = "", name }: Record<string, string>) => {
    await addVersion(dataset.id, { path, ...(name && { name }) });
    await invalidateDatasets(client);
  };
  return (
    <FormDialog
      title={t("datasets.addVersionTo", { name: dataset.name })}
      description={t("datasets.addHint")}
      submit={t("datasets.addVersion")}
      fields={["path", "name"]}
      onSubmit={add}
      trigger={<Button size="sm">{t("datasets.addVersion")}</Button>}
    >
      {(problem) => (
        <>
          <PathField error={problem("path")} />
          <TextField
            name="name"
            label={t("datasets.versionName")}
            error={problem("name")}
            placeholder={`v${dataset.versions.length + 1}`}
          />
        </>
      )}
    </FormDialog>
  );
}

function PathField({ error }: { error: string | undefined }) {
  const { t } = useTranslation();
  return (
    <TextField
      name="path"
      label={t("datasets.path")}
      error={error}
      hint={t("datasets.pathHint")}
      placeholder="/data/corpus"
      required
    />
  );
}

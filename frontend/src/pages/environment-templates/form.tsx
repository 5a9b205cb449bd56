import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Pencil, Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import {
  updateEnvironmentTemplate,
  createEnvironmentTemplate,
  type EnvironmentTemplate,
  invalidateTemplates,
} from "@/api/managed-environments";
import { zonesQuery } from "@/api/inventory";
import { clustersQuery } from "@/api/queue";
import { Button } from "@/ui/button";
import { Field } from "@/ui/field";
import { FormDialog, FormRow, LinesField, TextField } from "@/ui/form-dialog";
import { PairsField } from "@/ui/managed-environment/pairs-field";
import { toast } from "@/ui/toast";
import { FIELDS, NUMBERS, formatPorts, formatRows, buildTemplateBody } from "./fields";

/** Initial values of a new template. */
const BLANK: Omit<EnvironmentTemplate, "id" | "createdBy" | "createdAt"> = {
  name: "",
  description: "",
  projectId: null,
  clusterId: null,
  zone: null,
  kind: "jupyter",
  image: "",
  packages: [],
  gpuType: "",
  gpuCount: 0,
  emulated: false,
  cpuCores: 1,
  memoryGb: 2,
  sharedMemoryGb: 0,
  diskGb: 0,
  ports: [],
  env: {},
  secretEnv: {},
  startScript: "",
  idleStopMinutes: 60,
};

const KINDS = ["jupyter", "vscode", "custom"] as const;

interface TemplateFormProps {
  /** Undefined: a new template. */
  template?: EnvironmentTemplate;
  /** Possible owners of a new template: a project's id and name, or "" for the catalogue. */
  owners: [id: string, name: string][];
}

export function TemplateForm({ template, owners }: TemplateFormProps) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const zones = useQuery(zonesQuery).data ?? [];
  const clusters = useQuery(clustersQuery).data ?? [];
  const shown = template ?? BLANK;
  const save = async (texts: Record<string, string>) => {
    const body = buildTemplateBody(texts);
    if (template) await updateEnvironmentTemplate(template.id, body);
    else await createEnvironmentTemplate({ ...body, projectId: texts.projectId ? texts.projectId : null });
    await invalidateTemplates(client);
    toast.success(t("managedEnvironment.templates.saved"));
  };
  return (
    <FormDialog
      wide
      title={
        template
          ? t("managedEnvironment.templates.editOf", { name: template.name })
          : t("managedEnvironment.templates.add")
      }
      submit={t("managedEnvironment.templates.save")}
      fields={FIELDS}
      onSubmit={save}
      trigger={
        template ? (
          <Button size="sm" aria-label={t("managedEnvironment.templates.editOf", { name: template.name })}>
            <Pencil />
            {t("managedEnvironment.templates.edit")}
          </Button>
        ) : (
          <Button look="primary">
            <Plus />
            {t("managedEnvironment.templates.add")}
          </Button>
        )
      }
    >
      {(problem) => (
        <>
          <FormRow title={t("managedEnvironment.templates.general")}>
            <TextField
              name="name"
              label={t("managedEnvironment.name")}
              defaultValue={shown.name}
              error={problem("name")}
            />
            {!template && (
              <Choose
                name="projectId"
                label={t("managedEnvironment.templates.owner")}
                error={problem("projectId")}
                value={owners[0]?.[0] ?? ""}
                options={owners}
              />
            )}
            <TextField
              name="description"
              label={t("managedEnvironment.templates.description")}
              defaultValue={shown.description}
              error={problem("description")}
            />
            <Choose
              name="kind"
              label={t("managedEnvironment.templates.kind")}
              error={problem("kind")}
              value={shown.kind}
              options={KINDS.map((kind) => [kind, t(`environments.kindOf.${kind}`)])}
            />
          </FormRow>
          <FormRow title={t("managedEnvironment.templates.software")}>
            <TextField
              name="image"
              label={t("managedEnvironment.templates.image")}
              hint={t("managedEnvironment.templates.imageHint")}
              defaultValue={shown.image}
              error={problem("image")}
            />
            <LinesField
              name="packages"
              label={t("managedEnvironment.templates.packages")}
              hint={t("managedEnvironment.templates.packagesHint")}
              defaultValue={shown.packages.join("\n")}
              error={problem("packages")}
            />
            <div className="sm:col-span-2">
              <LinesField
                name="startScript"
                label={t("managedEnvironment.templates.startScript")}
                hint={t("managedEnvironment.templates.startScriptHint")}
                defaultValue={shown.startScript}
                error={problem("startScript")}
              />
            </div>
          </FormRow>
          <FormRow title={t("managedEnvironment.sizes")}>
            <TextField
              name="gpuType"
              label={t("managedEnvironment.gpuType")}
              defaultValue={shown.gpuType}
              error={problem("gpuType")}
            />
            {NUMBERS.map((name) => (
              <TextField
                key={name}
                name={name}
                label={t(`managedEnvironment.${name}`)}
                inputMode="numeric"
                defaultValue={shown[name]}
                error={problem(name)}
                {...(name === "diskGb" && { hint: t("managedEnvironment.diskHint") })}
              />
            ))}
            <TextField
              name="idleStopMinutes"
              label={t("managedEnvironment.idle")}
              hint={t("managedEnvironment.idleHint")}
              inputMode="numeric"
              defaultValue={shown.idleStopMinutes ?? ""}
              error={problem("idleStopMinutes")}
            />
            <label className="flex items-center gap-2 self-center text-sm">
              <input type="checkbox" name="emulated" defaultChecked={shown.emulated} />
              {t("managedEnvironment.templates.emulated")}
            </label>
          </FormRow>
          <FormRow title={t("managedEnvironment.where")}>
            <Choose
              name="zone"
              label={t("managedEnvironment.zone")}
              error={problem("zone")}
              value={shown.zone?.id ?? ""}
              options={[
                ["", t("managedEnvironment.anyZone")],
                ...zones.map(({ id, name }): [string, string] => [id, name]),
              ]}
            />
            <Choose
              name="clusterId"
              label={t("managedEnvironment.cluster")}
              error={problem("clusterId")}
              value={shown.clusterId ?? ""}
              options={[
                ["", t("managedEnvironment.anyCluster")],
                ...clusters.map(({ id, name }): [string, string] => [id, name]),
              ]}
            />
          </FormRow>
          <fieldset className="space-y-4">
            <legend className="mb-2 text-sm font-semibold text-muted">
              {t("managedEnvironment.templates.access")}
            </legend>
            <PairsField
              numeric
              name="ports"
              label={t("managedEnvironment.templates.ports")}
              hint={t("managedEnvironment.templates.portsHint")}
              error={problem("ports")}
              rows={formatPorts(shown)}
              nameLabel={t("managedEnvironment.templates.portName")}
              valueLabel={t("managedEnvironment.templates.portNumber")}
            />
            <PairsField
              name="env"
              label={t("managedEnvironment.templates.env")}
              hint=""
              error={problem("env")}
              rows={formatRows(shown.env)}
              nameLabel={t("managedEnvironment.templates.envName")}
              valueLabel={t("managedEnvironment.templates.envValue")}
            />
            <PairsField
              name="secretEnv"
              label={t("managedEnvironment.templates.secretEnv")}
              hint={t("managedEnvironment.templates.secretHint")}
              error={problem("secretEnv")}
              rows={formatRows(shown.secretEnv)}
              nameLabel={t("managedEnvironment.templates.envName")}
              valueLabel={t("managedEnvironment.templates.secretValue")}
            />
          </fieldset>
        </>
      )}
    </FormDialog>
  );
}

interface ChooseProps {
  name: string;
  label: string;
  error: string | undefined;
  value: string;
  options: [value: string, label: string][];
}

function Choose({ name, label, error, value, options }: ChooseProps) {
  return (
    <Field label={label} error={error}>
      {(wiring) => (
        <select {...wiring} name={name} className="control" defaultValue={value}>
          {options.map(([each, text]) => (
            <option key={each} value={each}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate } from "react-router";
import {
  invalidateEnvironments,
  type EnvironmentTemplate,
  environmentTemplatesQuery,
  createEnvironment,
  calculateHourlyPrice,
} from "@/api/managed-environments";
import { zonesQuery } from "@/api/inventory";
import { clustersQuery } from "@/api/queue";
import { meQuery } from "@/api/session";
import { pricesQuery } from "@/api/usage";
import { cx } from "@/lib/cx";
import { formatMoney } from "@/lib/format";
import { createIdempotencyKey } from "@/lib/idempotency-key";
import { Badge } from "@/ui/badge";
import { Button, ButtonLink } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { Field } from "@/ui/field";
import { FormDialog, FormRow, TextField } from "@/ui/form-dialog";
import { GpuSummary } from "@/ui/gpu-summary";
import { toast } from "@/ui/toast";
import { FIELDS, buildCreateBody } from "./create-body";

interface CreateEnvironmentProps {
  /** The template that is selected first. */
  template?: string;
  label?: string;
  look?: "primary" | "secondary";
  size?: "sm" | "md";
}

/** Creates an environment from a template, and opens its page. */
export function CreateEnvironment({ template: first, label, look = "primary", size = "md" }: CreateEnvironmentProps) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const navigate = useNavigate();
  const sent = useRef<{ text: string; key: string }>(null);
  const templates = useQuery(environmentTemplatesQuery).data;
  const make = async (texts: Record<string, string>) => {
    const template = templates?.find(({ id }) => id === texts.templateId);
    if (!template) return;
    const body = buildCreateBody(texts, template);
    const text = JSON.stringify(body);
    if (sent.current?.text !== text) sent.current = { text, key: createIdempotencyKey() };
    const made = await createEnvironment(body, sent.current.key);
    toast.success(t("managedEnvironment.made"));
    await invalidateEnvironments(client);
    await navigate(`/environments/${made.id}`);
  };
  return (
    <FormDialog
      wide
      title={t("managedEnvironment.makeTitle")}
      description={t("managedEnvironment.makeHint")}
      submit={t("managedEnvironment.submit")}
      fields={FIELDS}
      onSubmit={make}
      trigger={
        <Button look={look} size={size} {...(label && { "aria-label": label })}>
          <Plus />
          {t("managedEnvironment.make")}
        </Button>
      }
    >
      {(problem) => <Fields first={first} problem={problem} />}
    </FormDialog>
  );
}

type ProblemOf = (field: string) => string | undefined;

function Fields({ first, problem }: { first: string | undefined; problem: ProblemOf }) {
  const { t } = useTranslation();
  const templates = useQuery(environmentTemplatesQuery);
  const [chosen, setChosen] = useState(first);
  if (templates.isError) return <LoadError error={templates.error} retry={() => void templates.refetch()} />;
  if (templates.isPending) return <Loading />;
  if (templates.data.length === 0) {
    return (
      <EmptyState title={t("managedEnvironment.noTemplates")} hint={t("managedEnvironment.noTemplatesHint")}>
        <ButtonLink to="/environment-templates">{t("managedEnvironment.toTemplates")}</ButtonLink>
      </EmptyState>
    );
  }
  const template = templates.data.find(({ id }) => id === chosen) ?? templates.data[0];
  return (
    <>
      <fieldset aria-describedby={problem("templateId") && "template-problem"}>
        <legend className="mb-2 text-sm font-semibold text-muted">{t("managedEnvironment.template")}</legend>
        <div className="grid gap-2 sm:grid-cols-2">
          {templates.data.map((each) => (
            <TemplateCard
              key={each.id}
              template={each}
              chosen={each === template}
              onChoose={() => setChosen(each.id)}
            />
          ))}
        </div>
        {problem("templateId") && (
          <p id="template-problem" className="mt-1 text-sm text-bad-ink">
            {problem("templateId")}
          </p>
        )}
      </fieldset>
      {template && <Details key={template.id} template={template} problem={problem} />}
    </>
  );
}

function TemplateCard(props: { template: EnvironmentTemplate; chosen: boolean; onChoose: () => void }) {
  const { template, chosen, onChoose } = props;
  const { t } = useTranslation();
  const { id, name, kind, description, gpuType, gpuCount, emulated } = template;
  return (
    <label
      className={cx(
        "flex items-start gap-2.5 rounded-lg border-2 p-3 text-sm transition-colors",
        chosen ? "border-accent-line bg-accent-soft" : "hover:border-line-strong",
        "has-focus-visible:outline-2 has-focus-visible:outline-offset-2 has-focus-visible:outline-accent-line",
      )}
    >
      <input
        type="radio"
        name="templateId"
        value={id}
        checked={chosen}
        onChange={onChoose}
        className="mt-0.5 size-4 shrink-0 accent-accent outline-none"
      />
      <span className="min-w-0 space-y-1">
        <span className="flex flex-wrap items-center gap-1.5 font-medium">
          <span className="break-words">{name}</span>
          <Badge>{t(`environments.kindOf.${kind}`)}</Badge>
        </span>
        {description && <span className="block break-words text-muted">{description}</span>}
        <span className="block text-muted">
          <GpuSummary type={gpuType} count={gpuCount} emulated={emulated} />
        </span>
      </span>
    </label>
  );
}

function Details({ template, problem }: { template: EnvironmentTemplate; problem: ProblemOf }) {
  const { t } = useTranslation();
  const me = useQuery(meQuery).data;
  const zones = useQuery(zonesQuery).data ?? [];
  const clusters = useQuery(clustersQuery).data ?? [];
  const prices = useQuery(pricesQuery).data;
  const [zone, setZone] = useState(template.zone?.id ?? "");
  const [gpuCount, setGpuCount] = useState(String(template.gpuCount));
  const [gpuType, setGpuType] = useState(template.gpuType);
  const price = calculateHourlyPrice(prices, gpuType, zone, Number(gpuCount));
  const projects = (me?.projects ?? []).filter(
    ({ id, role }) =>
      (template.projectId === null || template.projectId === id) && (role !== "viewer" || me?.isAdministrator),
  );
  const sized = (name: "cpuCores" | "memoryGb" | "sharedMemoryGb" | "diskGb") => (
    <TextField
      name={name}
      label={t(`managedEnvironment.${name}`)}
      inputMode="numeric"
      defaultValue={template[name]}
      error={problem(name)}
      {...(name === "diskGb" && { hint: t("managedEnvironment.diskHint") })}
    />
  );
  return (
    <>
      <div className="grid items-start gap-4 sm:grid-cols-2">
        <TextField name="name" label={t("managedEnvironment.name")} error={problem("name")} />
        <Choose
          name="projectId"
          label={t("managedEnvironment.project")}
          error={problem("projectId")}
          options={projects.map(({ id, name }) => [id, name])}
        />
      </div>
      <FormRow title={t("managedEnvironment.sizes")}>
        <Field label={t("managedEnvironment.gpuCount")} error={problem("gpuCount")}>
          {(wiring) => (
            <input
              {...wiring}
              name="gpuCount"
              inputMode="numeric"
              autoComplete="off"
              className="control"
              value={gpuCount}
              onChange={({ target }) => setGpuCount(target.value)}
            />
          )}
        </Field>
        <Field label={t("managedEnvironment.gpuType")} error={problem("gpuType")}>
          {(wiring) => (
            <input
              {...wiring}
              name="gpuType"
              autoComplete="off"
              className="control"
              value={gpuType}
              onChange={({ target }) => setGpuType(target.value)}
            />
          )}
        </Field>
        {sized("cpuCores")}
        {sized("memoryGb")}
        {sized("sharedMemoryGb")}
        {sized("diskGb")}
        <TextField
          name="idleStopMinutes"
          label={t("managedEnvironment.idle")}
          hint={t("managedEnvironment.idleHint")}
          inputMode="numeric"
          defaultValue={template.idleStopMinutes ?? ""}
          error={problem("idleStopMinutes")}
        />
      </FormRow>
      <FormRow title={t("managedEnvironment.where")}>
        <Field label={t("managedEnvironment.zone")} error={problem("zone")}>
          {(wiring) => (
            <select
              {...wiring}
              name="zone"
              className="control"
              value={zone}
              onChange={({ target }) => setZone(target.value)}
            >
              <option value="">{t("managedEnvironment.anyZone")}</option>
              {zones.map(({ id, name }) => (
                <option key={id} value={id}>
                  {name}
                </option>
              ))}
            </select>
          )}
        </Field>
        <Choose
          name="clusterId"
          label={t("managedEnvironment.cluster")}
          error={problem("clusterId")}
          value={template.clusterId ?? ""}
          options={[
            ["", t("managedEnvironment.anyCluster")],
            ...clusters.map(({ id, name }): [string, string] => [id, name]),
          ]}
        />
        <TextField
          name="host"
          label={t("managedEnvironment.host")}
          hint={t("managedEnvironment.hostHint")}
          error={problem("host")}
        />
      </FormRow>
      {Number(gpuCount) > 0 && prices && (
        <p role="status" className="text-sm font-medium">
          {price
            ? t("managedEnvironment.perHour", { amount: formatMoney(price.amount, price.currency) })
            : t("managedEnvironment.noPrice")}
        </p>
      )}
    </>
  );
}

interface ChooseProps {
  name: string;
  label: string;
  error: string | undefined;
  value?: string;
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

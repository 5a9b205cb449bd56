import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Trash2 } from "lucide-react";
import { useTranslation } from "react-i18next";
import {
  deleteEnvironmentTemplate,
  type EnvironmentTemplate,
  environmentTemplatesQuery,
  invalidateTemplates,
} from "@/api/managed-environments";
import { canCreate, meQuery } from "@/api/session";
import type { Me } from "@/api/types";
import { formatInteger } from "@/lib/format";
import { Badge } from "@/ui/badge";
import { Button, ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { GpuSummary } from "@/ui/gpu-summary";
import { Page } from "@/ui/page";
import { toast } from "@/ui/toast";
import { CreateEnvironment } from "../environments/create-environment";
import { TemplateForm } from "./form";

export function Component() {
  const { t } = useTranslation();
  const me = useQuery(meQuery).data;
  const templates = useQuery(environmentTemplatesQuery);
  const owners = listOwners(me, t("managedEnvironment.templates.operators"));
  const named = new Map(me?.projects.map(({ id, name }) => [id, name]));
  const groups = [...new Set(templates.data?.map(({ projectId }) => projectId))].sort((a, b) =>
    (a ?? "").localeCompare(b ?? ""),
  );
  return (
    <Page
      title={t("managedEnvironment.templates.title")}
      actions={
        <>
          <ButtonLink to="/environments">{t("environments.backToList")}</ButtonLink>
          {owners.length > 0 && <TemplateForm owners={owners} />}
        </>
      }
    >
      <p className="mb-4 max-w-3xl text-sm text-muted">{t("managedEnvironment.templates.hint")}</p>
      {templates.isError && <LoadError error={templates.error} retry={() => void templates.refetch()} />}
      {templates.isPending && <Loading />}
      {templates.data?.length === 0 && <EmptyState title={t("managedEnvironment.templates.none")} />}
      <div className="space-y-4">
        {groups.map((project) => (
          <Card
            key={project ?? ""}
            title={
              project === null
                ? t("managedEnvironment.templates.catalogue")
                : t("managedEnvironment.templates.ofProject", { name: named.get(project) ?? project })
            }
          >
            <ul className="divide-y">
              {templates.data
                ?.filter((each) => each.projectId === project)
                .map((each) => (
                  <Row key={each.id} template={each} changes={canChange(me, each)} makes={canCreate(me)} />
                ))}
            </ul>
          </Card>
        ))}
      </div>
    </Page>
  );
}

/** Returns the possible owners of a new template. Only administrators may add to the catalogue. */
function listOwners(me: Me | undefined, operators: string): [string, string][] {
  if (!me) return [];
  const projects = me.projects.filter(({ role }) => role !== "viewer" || me.isAdministrator);
  return [
    ...(me.isAdministrator ? ([["", operators]] satisfies [string, string][]) : []),
    ...projects.map(({ id, name }): [string, string] => [id, name]),
  ];
}

function canChange(me: Me | undefined, { projectId }: EnvironmentTemplate): boolean {
  return projectId === null ? me?.isAdministrator === true : canCreate(me, projectId);
}

function Row({ template, changes, makes }: { template: EnvironmentTemplate; changes: boolean; makes: boolean }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const { id, name, kind, description, gpuType, gpuCount, emulated, cpuCores, memoryGb, zone, image, packages, ports } =
    template;
  const remove = useMutation({
    mutationFn: () => deleteEnvironmentTemplate(id),
    onSuccess: () => toast.success(t("managedEnvironment.templates.removed")),
    onError: (error) => toastError(t, error),
    onSettled: () => invalidateTemplates(client),
  });
  const facts = [
    t("environments.cpuAndMemoryValue", { count: cpuCores, memory: formatInteger(memoryGb) }),
    zone?.name,
    image,
    packages.join(", "),
    ports.map((each) => `${each.name}:${each.port}`).join(", "),
  ].filter(Boolean);
  return (
    <li className="flex flex-wrap items-center gap-x-4 gap-y-2 py-3 text-sm">
      <div className="min-w-0 flex-1 basis-64">
        <p className="flex flex-wrap items-center gap-2 font-medium">
          <span className="break-words">{name}</span>
          <Badge>{t(`environments.kindOf.${kind}`)}</Badge>
          <GpuSummary type={gpuType} count={gpuCount} emulated={emulated} />
        </p>
        {description && <p className="break-words text-muted">{description}</p>}
        <p className="break-words text-muted">{facts.join(" · ")}</p>
      </div>
      <div className="flex flex-wrap gap-2">
        {makes && (
          <CreateEnvironment
            template={id}
            look="secondary"
            size="sm"
            label={`${t("managedEnvironment.make")} ${name}`}
          />
        )}
        {changes && <TemplateForm template={template} owners={[]} />}
        {changes && (
          <ConfirmDialog
            danger
            title={t("managedEnvironment.templates.removeTitle", { name })}
            description={t("managedEnvironment.templates.removeHint")}
            action={t("managedEnvironment.templates.remove")}
            onConfirm={() => remove.mutate()}
            trigger={
              <Button
                size="sm"
                look="ghost"
                disabled={remove.isPending}
                aria-label={t("managedEnvironment.templates.removeOf", { name })}
              >
                <Trash2 />
                {t("managedEnvironment.templates.remove")}
              </Button>
            }
          />
        )}
      </div>
    </li>
  );
}

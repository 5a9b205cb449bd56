import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import { createGroup, groupsQuery, invalidateWorkers } from "@/api/workers";
import { ProjectField, useWritableProjects } from "@/pages/workers/project-field";
import { WorkerSections } from "@/pages/workers/worker-sections";
import { Button } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { Page } from "@/ui/page";
import { GroupCard } from "./card";

export function Component() {
  const { t } = useTranslation();
  const groups = useQuery(groupsQuery);
  const mayCreate = useWritableProjects().length > 0;
  return (
    <Page title={t("workers.groups")} actions={mayCreate && <CreateGroup />}>
      <WorkerSections />
      {groups.isError && <LoadError error={groups.error} retry={() => void groups.refetch()} />}
      {groups.isPending && <Loading />}
      {groups.data?.length === 0 && (
        <section className="rounded-xl border bg-surface shadow-xs">
          <EmptyState title={t("groups.empty")} hint={mayCreate ? t("groups.emptyHint") : undefined}>
            {mayCreate && <CreateGroup />}
          </EmptyState>
        </section>
      )}
      <div className="grid items-start gap-4 xl:grid-cols-2">
        {groups.data?.map((group) => (
          <GroupCard key={group.id} group={group} />
        ))}
      </div>
    </Page>
  );
}

function CreateGroup() {
  const { t } = useTranslation();
  const client = useQueryClient();
  const create = async ({ name = "", projectId }: Record<string, string>) => {
    await createGroup({ name, ...(projectId && { projectId }) });
    await invalidateWorkers(client);
  };
  return (
    <FormDialog
      title={t("groups.create")}
      submit={t("groups.create")}
      fields={["name", "projectId"]}
      onSubmit={create}
      trigger={
        <Button look="primary">
          <Plus />
          {t("groups.create")}
        </Button>
      }
    >
      {(problem) => (
        <>
          <TextField name="name" label={t("groups.name")} error={problem("name")} required />
          <ProjectField error={problem("projectId")} />
        </>
      )}
    </FormDialog>
  );
}

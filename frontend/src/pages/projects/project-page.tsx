import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Pencil, Trash2 } from "lucide-react";
import { useTranslation } from "react-i18next";
import { useNavigate, useParams } from "react-router";
import { deleteProject, projectQuery, refreshProjects, renameProject } from "@/api/projects";
import { isMaintainer, meQuery } from "@/api/session";
import type { Project } from "@/api/types";
import { Button } from "@/ui/button";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { Page } from "@/ui/page";
import { TextLink } from "@/ui/text-link";
import { ProjectCard } from "../settings/projects";

/** One project: its name, and what is set for it. */
export function Component() {
  const { t } = useTranslation();
  const { id = "" } = useParams();
  const project = useQuery(projectQuery(id));
  const me = useQuery(meQuery).data;
  const mayChange = isMaintainer(me, id);
  const actions = project.data && (
    <>
      {mayChange && <RenameProject key={project.data.name} project={project.data} />}
      {me?.isAdministrator && <DeleteProject project={project.data} />}
    </>
  );
  return (
    <Page title={project.data?.name ?? t("app.projects")} actions={actions}>
      <p className="mb-3 flex flex-wrap gap-x-3 text-sm">
        <TextLink to="/administration/projects">{t("projects.all")}</TextLink>
        <TextLink to={`/queue?project=${id}`}>{t("app.queue")}</TextLink>
      </p>
      {project.isError && <LoadError error={project.error} retry={() => void project.refetch()} />}
      {project.isPending && <Loading />}
      {project.data && <ProjectCard project={project.data} mayChange={mayChange} />}
    </Page>
  );
}

function RenameProject({ project: { id, name } }: { project: Project }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const rename = async (texts: Record<string, string>) => {
    await renameProject(id, texts.name ?? "");
    await refreshProjects(client);
  };
  return (
    <FormDialog
      title={t("projects.renameTitle", { name })}
      description={t("projects.renameHint")}
      submit={t("projects.rename")}
      fields={["name"]}
      onSubmit={rename}
      trigger={
        <Button>
          <Pencil />
          {t("projects.rename")}
        </Button>
      }
    >
      {(problem) => (
        <TextField
          name="name"
          label={t("settings.projectName")}
          error={problem("name")}
          defaultValue={name}
          maxLength={100}
          required
        />
      )}
    </FormDialog>
  );
}

function DeleteProject({ project: { id, name } }: { project: Project }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const navigate = useNavigate();
  const remove = useMutation({
    mutationFn: () => deleteProject(id),
    onError: (error: Error) => toastError(t, error),
    onSuccess: async () => {
      await navigate("/administration/projects");
      await refreshProjects(client);
    },
  });
  return (
    <ConfirmDialog
      danger
      title={t("projects.deleteTitle", { name })}
      description={t("projects.deleteHint")}
      action={t("projects.delete")}
      onConfirm={() => remove.mutate()}
      trigger={
        <Button disabled={remove.isPending}>
          <Trash2 />
          {t("projects.delete")}
        </Button>
      }
    />
  );
}

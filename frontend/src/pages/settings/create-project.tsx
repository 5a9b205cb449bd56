import { useQueryClient } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import { createProject, refreshProjects } from "@/api/projects";
import { Button } from "@/ui/button";
import { FormDialog, TextField } from "@/ui/form-dialog";

/** A button that creates a project; for administrators. */
export function CreateProject({ look = "secondary" }: { look?: "primary" | "secondary" }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const create = async ({ name = "" }: Record<string, string>) => {
    await createProject(name);
    await refreshProjects(client);
  };
  return (
    <FormDialog
      title={t("settings.createProject")}
      submit={t("settings.create")}
      fields={["name"]}
      onSubmit={create}
      trigger={
        <Button look={look}>
          <Plus />
          {t("settings.createProject")}
        </Button>
      }
    >
      {(problem) => (
        <TextField name="name" label={t("settings.projectName")} error={problem("name")} maxLength={100} required />
      )}
    </FormDialog>
  );
}

import { useQueryClient } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import type { JoinTokenCreated } from "@/api/types";
import { createJoinToken, workerKeys } from "@/api/workers";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { CodeBlock } from "@/ui/code-block";
import { CopyText } from "@/ui/copy-button";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { ProjectField } from "./project-field";

/** Creates a join token and shows the command that uses it. */
export function AddWorkers() {
  const { t } = useTranslation();
  const client = useQueryClient();
  const create = async ({ name = "", projectId }: Record<string, string>) => {
    const made = await createJoinToken({ name, ...(projectId && { projectId }) });
    await client.invalidateQueries({ queryKey: workerKeys.tokens });
    return made;
  };
  return (
    <FormDialog
      wide
      title={t("workers.add")}
      description={t("workers.addHint")}
      submit={t("workers.create")}
      fields={["name", "projectId"]}
      onSubmit={create}
      result={(made) => <TokenCreated made={made} />}
      trigger={
        <Button look="primary">
          <Plus />
          {t("workers.add")}
        </Button>
      }
    >
      {(problem) => (
        <>
          <TextField
            name="name"
            label={t("workers.tokenName")}
            error={problem("name")}
            placeholder={t("workers.tokenNamePlaceholder")}
            required
          />
          <ProjectField error={problem("projectId")} />
        </>
      )}
    </FormDialog>
  );
}

function TokenCreated({ made: { token, command } }: { made: JoinTokenCreated }) {
  const { t } = useTranslation();
  return (
    <div role="status" className="space-y-4">
      <Callout tone="ok">{t("workers.once")}</Callout>
      <div className="space-y-1.5">
        <p className="text-sm font-medium">{t("workers.command")}</p>
        <CodeBlock name="fermi-worker.sh" content={command} />
      </div>
      <div className="space-y-1">
        <p className="text-sm font-medium">{t("workers.token")}</p>
        <CopyText text={token} />
      </div>
    </div>
  );
}

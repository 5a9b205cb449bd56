import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { type AgentToken, changePurse, invalidateAgents } from "@/api/agents";
import { Button } from "@/ui/button";
import { FormDialog } from "@/ui/form-dialog";
import { PURSE_FIELDS, PurseFields, readPurse } from "./purse-fields";

/** Changes the limits of a purse. */
export function ChangePurse({ agent }: { agent: AgentToken }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [environments, setEnvironments] = useState(agent.purse.environments);
  const change = async (texts: Record<string, string>) => {
    await changePurse(agent.id, readPurse(texts, environments));
    await invalidateAgents(client);
  };
  return (
    <FormDialog
      title={t("agents.changeOf", { name: agent.name })}
      description={t("agents.changeHint")}
      submit={t("app.save")}
      wide
      fields={PURSE_FIELDS}
      onSubmit={change}
      onOpenChange={(open) => open && setEnvironments(agent.purse.environments)}
      trigger={<Button size="sm">{t("agents.change")}</Button>}
    >
      {(problem) => (
        <PurseFields
          purse={agent.purse}
          environments={environments}
          onEnvironments={setEnvironments}
          problem={problem}
        />
      )}
    </FormDialog>
  );
}

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { type AgentToken, invalidateAgents, revokeAgent } from "@/api/agents";
import { Button } from "@/ui/button";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { toastError } from "@/ui/errors";

/** Revokes an agent's token after a question. */
export function RevokeAgent({ agent, onRevoked }: { agent: AgentToken; onRevoked?: () => void }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const revoke = useMutation({
    mutationFn: () => revokeAgent(agent.id),
    onError: (error) => toastError(t, error),
    onSuccess: () => {
      onRevoked?.();
      return invalidateAgents(client);
    },
  });
  return (
    <ConfirmDialog
      danger
      title={t("agents.revokeTitle", { name: agent.name })}
      description={t("agents.revokeHint")}
      action={t("agents.revoke")}
      onConfirm={() => revoke.mutate()}
      trigger={
        <Button size="sm" disabled={revoke.isPending}>
          {t("agents.revoke")}
        </Button>
      }
    />
  );
}

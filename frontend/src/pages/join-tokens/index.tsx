import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import type { JoinToken } from "@/api/types";
import { joinTokensQuery, revokeJoinToken, workerKeys } from "@/api/workers";
import { formatDateTime } from "@/lib/format";
import { AddWorkers } from "@/pages/workers/add-workers";
import { useWritableProjects } from "@/pages/workers/project-field";
import { WorkerSections } from "@/pages/workers/worker-sections";
import { Card } from "@/ui/card";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { Page } from "@/ui/page";
import { TokenRow } from "@/ui/token-row";

export function Component() {
  const { t } = useTranslation();
  const tokens = useQuery(joinTokensQuery);
  const projects = useWritableProjects().map(({ id }) => id);
  return (
    <Page title={t("workers.joinTokens")} actions={projects.length > 0 && <AddWorkers />}>
      <WorkerSections />
      <Card>
        <p className="text-sm text-muted">
          {t("workers.addHint")} {t("workers.tokensHint")}
        </p>
        {tokens.isError && <LoadError error={tokens.error} retry={() => void tokens.refetch()} />}
        {tokens.isPending && <Loading />}
        {tokens.data?.length === 0 && <EmptyState title={t("workers.noTokens")} />}
        <ul className="mt-2 divide-y text-sm">
          {tokens.data?.map((token) => (
            <TokenItem key={token.id} token={token} mayRevoke={projects.includes(token.projectId)} />
          ))}
        </ul>
      </Card>
    </Page>
  );
}

function TokenItem({ token, mayRevoke }: { token: JoinToken; mayRevoke: boolean }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const revoke = useMutation({
    mutationFn: () => revokeJoinToken(token.id),
    onError: (error) => toastError(t, error),
    onSettled: () => client.invalidateQueries({ queryKey: workerKeys.tokens }),
  });
  return (
    <TokenRow
      name={token.name}
      facts={
        <>
          {t("settings.createdAt", { time: formatDateTime(token.createdAt) })} ·{" "}
          {token.lastUsedAt ? t("workers.usedAt", { time: formatDateTime(token.lastUsedAt) }) : t("workers.neverUsed")}
        </>
      }
      title={t("workers.revokeTitle", { name: token.name })}
      hint={t("workers.revokeHint")}
      revoke={mayRevoke ? revoke : undefined}
    />
  );
}

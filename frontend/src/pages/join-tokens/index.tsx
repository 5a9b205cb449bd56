import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import type { JoinToken } from "@/api/types";
import { joinTokensQuery, revokeJoinToken, workerKeys } from "@/api/workers";
import { dateTime } from "@/lib/format";
import { AddWorkers } from "@/pages/workers/add";
import { WorkerSections } from "@/pages/workers/sections";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { Confirm } from "@/ui/confirm";
import { Empty } from "@/ui/empty";
import { Failure, Loading, toastError } from "@/ui/failure";
import { Page } from "@/ui/page";

export function Component() {
  const { t } = useTranslation();
  const tokens = useQuery(joinTokensQuery);
  return (
    <Page title={t("workers.joinTokens")} actions={<AddWorkers />}>
      <WorkerSections />
      <Card>
        <p className="text-sm text-muted">
          {t("workers.addHint")} {t("workers.tokensHint")}
        </p>
        {tokens.isError && <Failure error={tokens.error} retry={() => void tokens.refetch()} />}
        {tokens.isPending && <Loading />}
        {tokens.data?.length === 0 && <Empty title={t("workers.noTokens")} />}
        <ul className="mt-2 divide-y text-sm">
          {tokens.data?.map((token) => (
            <TokenItem key={token.id} token={token} />
          ))}
        </ul>
      </Card>
    </Page>
  );
}

function TokenItem({ token }: { token: JoinToken }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const revoke = useMutation({
    mutationFn: () => revokeJoinToken(token.id),
    onError: (error) => toastError(t, error),
    onSettled: () => client.invalidateQueries({ queryKey: workerKeys.tokens }),
  });
  return (
    <li className="flex flex-wrap items-center gap-x-4 gap-y-1 py-2.5">
      <span className="min-w-0 flex-1 basis-40">
        <span className="font-medium break-words">{token.name}</span>
        <span className="block text-muted">
          {t("settings.createdAt", { time: dateTime(token.createdAt) })} ·{" "}
          {token.lastUsedAt ? t("workers.usedAt", { time: dateTime(token.lastUsedAt) }) : t("workers.neverUsed")}
        </span>
      </span>
      <Confirm
        danger
        title={t("workers.revokeTitle", { name: token.name })}
        description={t("workers.revokeHint")}
        action={t("settings.revoke")}
        onConfirm={() => revoke.mutate()}
        trigger={
          <Button size="sm" disabled={revoke.isPending}>
            {t("settings.revoke")}
          </Button>
        }
      />
    </li>
  );
}

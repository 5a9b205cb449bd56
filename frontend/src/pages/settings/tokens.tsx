import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { createToken, refreshTokens, revokeToken, revokeTokens, tokensQuery } from "@/api/account";
import type { Me, Token, TokenRequest } from "@/api/types";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { TokenRow } from "@/ui/token-row";
import { CreateToken } from "./create-token";
import { TokenFacts } from "./token-facts";

export function Tokens({ me }: { me: Me }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const tokens = useQuery(tokensQuery);
  const [chosen, setChosen] = useState<string[]>([]);
  const create = async (request: TokenRequest) => {
    const { token } = await createToken(request);
    await refreshTokens(client);
    return token;
  };
  const listed = tokens.data ?? [];
  const selected = listed.map((token) => token.id).filter((id) => chosen.includes(id));
  return (
    <Card title={t("settings.tokens")} aside={<CreateToken projects={me.projects} first={null} onCreate={create} />}>
      <p className="text-sm text-muted">{t("settings.tokensHint")}</p>
      {tokens.isError && <LoadError error={tokens.error} retry={() => void tokens.refetch()} />}
      {tokens.isPending && <Loading />}
      {listed.length > 1 && (
        <RevokeSeveral ids={selected} listed={listed.map((token) => token.id)} onSelect={setChosen} />
      )}
      <ul className="mt-2 divide-y text-sm" aria-label={t("settings.tokens")}>
        {listed.map((token) => (
          <TokenItem
            key={token.id}
            me={me}
            token={token}
            selected={chosen.includes(token.id)}
            onSelect={
              listed.length > 1
                ? (on) => setChosen(on ? [...chosen, token.id] : chosen.filter((id) => id !== token.id))
                : undefined
            }
          />
        ))}
      </ul>
      {tokens.data?.length === 0 && <p className="py-4 text-center text-sm text-muted">{t("settings.noTokens")}</p>}
    </Card>
  );
}

interface RevokeSeveralProps {
  ids: string[];
  listed: string[];
  onSelect: (ids: string[]) => void;
}

function RevokeSeveral({ ids, listed, onSelect }: RevokeSeveralProps) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const revoke = useMutation({
    mutationFn: () => revokeTokens(ids),
    onError: (error) => toastError(t, error),
    onSettled: () => refreshTokens(client),
  });
  return (
    <div className="mt-3 flex items-center justify-between gap-3 text-sm">
      <label className="flex items-center gap-2">
        <input
          type="checkbox"
          checked={ids.length === listed.length}
          onChange={({ target }) => onSelect(target.checked ? listed : [])}
        />
        {t("apiTokens.selectAll")}
      </label>
      <ConfirmDialog
        danger
        title={t("apiTokens.revokeSeveralTitle", { count: ids.length })}
        description={t("settings.revokeHint")}
        action={t("settings.revoke")}
        onConfirm={() => revoke.mutate()}
        trigger={
          <Button size="sm" disabled={ids.length === 0 || revoke.isPending}>
            {t("apiTokens.revokeSelected", { count: ids.length })}
          </Button>
        }
      />
    </div>
  );
}

interface TokenItemProps {
  me: Me;
  token: Token;
  selected: boolean;
  onSelect: ((on: boolean) => void) | undefined;
}

function TokenItem({ me, token, selected, onSelect }: TokenItemProps) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const revoke = useMutation({
    mutationFn: () => revokeToken(token.id),
    onError: (error) => toastError(t, error),
    onSuccess: () => refreshTokens(client),
  });
  return (
    <TokenRow
      name={token.name}
      facts={<TokenFacts token={token} projects={me.projects} />}
      title={t("settings.revokeTitle", { name: token.name })}
      hint={t("settings.revokeHint")}
      revoke={revoke}
      before={
        onSelect && (
          <input
            type="checkbox"
            aria-label={t("apiTokens.select", { name: token.name })}
            checked={selected}
            onChange={({ target }) => onSelect(target.checked)}
          />
        )
      }
    />
  );
}

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { accountKeys, createToken, revokeToken, tokensQuery } from "@/api/account";
import type { Token } from "@/api/types";
import { formatDateTime } from "@/lib/format";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { CopyButton } from "@/ui/file-tabs";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { Field } from "@/ui/field";
import { TokenRow } from "@/ui/token-row";

const LIFETIMES = [7, 30, 90, 365] as const;

export function Tokens() {
  const { t } = useTranslation();
  const client = useQueryClient();
  const tokens = useQuery(tokensQuery);
  const [made, setMade] = useState<string>();
  const create = async ({ name = "", days }: Record<string, string>) => {
    const { token } = await createToken({ name, ...(days && { expiresInDays: Number(days) }) });
    setMade(token);
    await client.invalidateQueries({ queryKey: accountKeys.tokens });
  };
  return (
    <Card title={t("settings.tokens")} aside={<CreateToken onCreate={create} />}>
      <p className="text-sm text-muted">{t("settings.tokensHint")}</p>
      {made && (
        <div className="mt-3">
          <Callout tone="ok" role="status">
            <p className="font-medium">{t("settings.tokenOnce")}</p>
            <p className="mt-1 flex items-center gap-2 font-mono text-xs">
              <code className="min-w-0 break-all select-all">{made}</code>
              <CopyButton text={made} />
            </p>
          </Callout>
        </div>
      )}
      {tokens.isError && <LoadError error={tokens.error} retry={() => void tokens.refetch()} />}
      {tokens.isPending && <Loading />}
      <ul className="mt-2 divide-y text-sm">
        {tokens.data?.map((token) => (
          <TokenItem key={token.id} token={token} />
        ))}
      </ul>
      {tokens.data?.length === 0 && <p className="py-4 text-center text-sm text-muted">{t("settings.noTokens")}</p>}
    </Card>
  );
}

function CreateToken({ onCreate }: { onCreate: (texts: Record<string, string>) => Promise<void> }) {
  const { t } = useTranslation();
  return (
    <FormDialog
      title={t("settings.createToken")}
      submit={t("settings.create")}
      fields={["name", "expiresInDays"]}
      onSubmit={onCreate}
      trigger={
        <Button size="sm">
          <Plus />
          {t("settings.createToken")}
        </Button>
      }
    >
      {(problem) => (
        <>
          <TextField name="name" label={t("settings.tokenName")} error={problem("name")} required />
          <Field label={t("settings.expires")} error={problem("expiresInDays")}>
            {(wiring) => (
              <select {...wiring} name="days" className="control" defaultValue="90">
                {LIFETIMES.map((days) => (
                  <option key={days} value={days}>
                    {t("unit.day", { count: days })}
                  </option>
                ))}
                <option value="">{t("settings.never")}</option>
              </select>
            )}
          </Field>
        </>
      )}
    </FormDialog>
  );
}

function TokenItem({ token }: { token: Token }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const revoke = useMutation({
    mutationFn: () => revokeToken(token.id),
    onError: (error) => toastError(t, error),
    onSuccess: () => client.invalidateQueries({ queryKey: accountKeys.tokens }),
  });
  return (
    <TokenRow
      name={token.name}
      facts={
        <>
          {t("settings.createdAt", { time: formatDateTime(token.createdAt) })} ·{" "}
          {token.expiresAt
            ? t("settings.expiresAt", { time: formatDateTime(token.expiresAt) })
            : t("settings.neverExpires")}
        </>
      }
      title={t("settings.revokeTitle", { name: token.name })}
      hint={t("settings.revokeHint")}
      revoke={revoke}
    />
  );
}

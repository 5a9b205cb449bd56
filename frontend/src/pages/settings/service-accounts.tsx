import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import {
  accountKeys,
  changeServiceAccount,
  createServiceAccount,
  createServiceAccountToken,
  deleteServiceAccount,
  projectTokensQuery,
  refreshTokens,
  revokeProjectToken,
  serviceAccountsQuery,
} from "@/api/account";
import type { Member, ProjectToken, ServiceAccount, TokenRequest } from "@/api/types";
import { Button } from "@/ui/button";
import { LoadError, toastError } from "@/ui/errors";
import { Field } from "@/ui/field";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { TokenRow } from "@/ui/token-row";
import { CreateToken } from "./create-token";
import { ExchangeRules } from "./exchange-rules";
import { RemovableRow } from "./removable-row";
import { RoleOptions } from "./role-options";
import { TokenFacts } from "./token-facts";
import { PRESETS } from "./token-scopes";

interface Props {
  project: { id: string; name: string };
}

/** The service accounts of a project, and the tokens that are limited to it; for its maintainers. */
export function ServiceAccounts({ project }: Props) {
  const { t } = useTranslation();
  const accounts = useQuery(serviceAccountsQuery(project.id));
  return (
    <section className="mt-4 border-t pt-3">
      <div className="flex items-center justify-between gap-3">
        <h3 className="text-sm font-semibold">{t("apiTokens.accounts")}</h3>
        <CreateAccount project={project.id} />
      </div>
      <p className="mt-1 text-xs text-muted">{t("apiTokens.accountsHint")}</p>
      {accounts.isError && <LoadError error={accounts.error} retry={() => void accounts.refetch()} />}
      <ul className="mt-1 divide-y text-sm" aria-label={t("apiTokens.accounts")}>
        {accounts.data?.map((account) => (
          <AccountRow key={account.name} project={project.id} account={account} />
        ))}
      </ul>
      {accounts.data && <ExchangeRules project={project.id} accounts={accounts.data} />}
      <ProjectTokens project={project} />
    </section>
  );
}

function CreateAccount({ project }: { project: string }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const create = async ({ name = "", role }: Record<string, string>) => {
    await createServiceAccount(project, { name, role: role as Member["role"] });
    await client.invalidateQueries({ queryKey: accountKeys.serviceAccounts(project) });
  };
  return (
    <FormDialog
      title={t("apiTokens.createAccount")}
      submit={t("settings.create")}
      fields={["name", "role"]}
      onSubmit={create}
      trigger={
        <Button size="sm">
          <Plus />
          {t("apiTokens.createAccount")}
        </Button>
      }
    >
      {(problem) => (
        <>
          <TextField
            name="name"
            label={t("apiTokens.accountName")}
            hint={t("apiTokens.accountNameHint")}
            placeholder="ci"
            maxLength={40}
            error={problem("name")}
            required
          />
          <Field label={t("settings.role")} hint={t("settings.rolesHint")} error={problem("role")}>
            {(wiring) => (
              <select {...wiring} name="role" className="control" defaultValue="member">
                <RoleOptions />
              </select>
            )}
          </Field>
        </>
      )}
    </FormDialog>
  );
}

function AccountRow({ project, account }: { project: string; account: ServiceAccount }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const refresh = () => refreshTokens(client);
  const after = { onError: (error: Error) => toastError(t, error), onSettled: refresh };
  const change = useMutation({
    mutationFn: (role: Member["role"]) => changeServiceAccount(project, account.name, role),
    ...after,
  });
  const remove = useMutation({ mutationFn: () => deleteServiceAccount(project, account.name), ...after });
  const create = async (request: TokenRequest) => {
    const { token } = await createServiceAccountToken(project, account.name, request);
    await refresh();
    return token;
  };
  return (
    <RemovableRow
      name={
        <>
          <span className="font-medium">{account.name}</span>
          <span className="block text-xs text-muted">
            {account.username} · {t("apiTokens.counted", { count: account.tokens })}
          </span>
        </>
      }
      label={t("apiTokens.deleteAccount", { name: account.name })}
      title={t("apiTokens.deleteAccountTitle", { name: account.name })}
      hint={t("apiTokens.deleteAccountHint")}
      remove={remove}
    >
      <select
        aria-label={t("settings.roleOfMember", { name: account.name })}
        className="control w-auto"
        value={account.role}
        disabled={change.isPending}
        onChange={({ target }) => change.mutate(target.value as Member["role"])}
      >
        <RoleOptions />
      </select>
      <CreateToken
        projects={[]}
        first={PRESETS.pipeline}
        onCreate={create}
        label={t("apiTokens.createFor", { name: account.name })}
      />
    </RemovableRow>
  );
}

function ProjectTokens({ project }: Props) {
  const { t } = useTranslation();
  const tokens = useQuery(projectTokensQuery(project.id));
  const count = tokens.data?.length ?? 0;
  return (
    <details className="mt-2 text-sm">
      <summary className="cursor-pointer text-muted">{t("apiTokens.ofProject", { count })}</summary>
      <p className="mt-1 text-xs text-muted">{t("apiTokens.ofProjectHint")}</p>
      {tokens.isError && <LoadError error={tokens.error} retry={() => void tokens.refetch()} />}
      <ul className="mt-1 divide-y" aria-label={t("apiTokens.ofProject", { count })}>
        {tokens.data?.map((token) => (
          <ProjectTokenItem key={token.id} project={project} token={token} />
        ))}
      </ul>
    </details>
  );
}

function ProjectTokenItem({ project, token }: Props & { token: ProjectToken }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const revoke = useMutation({
    mutationFn: () => revokeProjectToken(project.id, token.id),
    onError: (error) => toastError(t, error),
    onSettled: () => refreshTokens(client),
  });
  return (
    <TokenRow
      name={`${token.name} · ${token.username}`}
      facts={<TokenFacts token={token} projects={[project]} />}
      title={t("settings.revokeTitle", { name: token.name })}
      hint={t("settings.revokeHint")}
      revoke={revoke}
    />
  );
}

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Plus, Trash2 } from "lucide-react";
import { useTranslation } from "react-i18next";
import {
  createDirectoryToken,
  deleteDirectory,
  directoriesQuery,
  type Directory,
  type DirectoryToken,
  invalidateDirectories,
  revokeDirectoryToken,
} from "@/api/directories";
import type { IdentityProvider } from "@/api/identity";
import { formatDateTime } from "@/lib/format";
import { Button } from "@/ui/button";
import { CopyText } from "@/ui/copy-button";
import { Card } from "@/ui/card";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { FormDialog } from "@/ui/form-dialog";
import { toast } from "@/ui/toast";
import { TokenRow } from "@/ui/token-row";
import { CreateDirectory, type Uid } from "./create-directory";
import { NewToken, SCIM_URL } from "./parts";

/** The directories that write people and groups over SCIM. */
export function Directories({ providers }: { providers: IdentityProvider[] }) {
  const { t } = useTranslation();
  const directories = useQuery(directoriesQuery);
  return (
    <Card
      id="directories"
      className="mt-6"
      title={t("directories.title")}
      aside={directories.data && <CreateDirectory providers={providers} />}
    >
      <p className="max-w-3xl text-sm text-muted">{t("directories.lead")}</p>
      {directories.isError && <LoadError error={directories.error} retry={() => void directories.refetch()} />}
      {directories.isPending && <Loading />}
      {directories.data?.length === 0 && <p className="mt-3 text-sm">{t("directories.none")}</p>}
      {directories.data && directories.data.length > 0 && (
        <ul aria-label={t("directories.title")} className="mt-3 divide-y border-t">
          {directories.data.map((each) => (
            <li key={each.id} className="py-4 last:pb-0">
              <DirectoryDetails
                directory={each}
                provider={providers.find(({ id }) => id === each.provider)?.name ?? each.provider}
              />
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function DirectoryDetails({ directory, provider }: { directory: Directory; provider: string }) {
  const { t } = useTranslation();
  const { name, uidAttribute, people, groups, tokens } = directory;
  const lastUse = tokens
    .map(({ lastUsedAt }) => lastUsedAt ?? "")
    .reduce((one, other) => (one > other ? one : other), "");
  const facts: [label: string, value: string][] = [
    [t("directories.provider"), provider || t("directories.noProvider")],
    ...(provider
      ? [[t("directories.uid"), t(`directories.uidOf.${(uidAttribute as Uid) || "none"}`)] as [string, string]]
      : []),
    [t("directories.content"), t("directories.counts", { people, groups })],
    [t("directories.lastRequest"), lastUse ? formatDateTime(lastUse) : t("directories.never")],
  ];
  return (
    <>
      <div className="mb-2 flex flex-wrap items-center justify-between gap-2">
        <h3 className="font-semibold break-words">{name}</h3>
        <DeleteDirectory directory={directory} />
      </div>
      <dl className="grid items-center gap-x-4 gap-y-1 text-sm sm:grid-cols-[10rem_minmax(0,1fr)]">
        {facts.map(([label, value]) => (
          <div key={label} className="contents">
            <dt className="text-muted">{label}</dt>
            <dd className="break-words">{value}</dd>
          </div>
        ))}
        <dt className="text-muted">{t("directories.address")}</dt>
        <dd>
          <CopyText text={SCIM_URL} />
        </dd>
      </dl>
      <div className="mt-3 flex flex-wrap items-center justify-between gap-2">
        <h4 className="text-sm font-semibold">{t("directories.tokens", { count: tokens.length })}</h4>
        <CreateToken directory={directory} />
      </div>
      {tokens.length === 0 && <p className="text-sm text-muted">{t("directories.noToken")}</p>}
      <ul className="divide-y text-sm">
        {tokens.map((token) => (
          <Token key={token.id} directory={directory} token={token} />
        ))}
      </ul>
    </>
  );
}

function Token({ directory, token: { id, createdAt, createdBy, lastUsedAt } }: TokenProps) {
  const { t } = useTranslation();
  const revoke = useChange(() => revokeDirectoryToken(directory.id, id), t("directories.revoked"));
  const created = formatDateTime(createdAt);
  return (
    <TokenRow
      name={t(createdBy ? "directories.createdBy" : "directories.created", { time: created, name: createdBy })}
      facts={lastUsedAt ? t("directories.lastUsed", { time: formatDateTime(lastUsedAt) }) : t("directories.neverUsed")}
      title={t("directories.revokeTitle", { name: directory.name })}
      hint={t(directory.tokens.length > 1 ? "directories.revokeHint" : "directories.revokeLastHint")}
      revoke={revoke}
    />
  );
}

interface TokenProps {
  directory: Directory;
  token: DirectoryToken;
}

function CreateToken({ directory: { id, name } }: { directory: Directory }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const create = async () => {
    const made = await createDirectoryToken(id);
    await invalidateDirectories(client);
    return made.token;
  };
  return (
    <FormDialog
      title={t("directories.createTokenOf", { name })}
      submit={t("directories.createToken")}
      fields={[]}
      onSubmit={create}
      result={(token) => <NewToken token={token} />}
      trigger={
        <Button size="sm" aria-label={t("directories.createTokenOf", { name })}>
          <Plus />
          {t("directories.createToken")}
        </Button>
      }
    >
      {() => <p className="text-sm text-muted">{t("directories.createTokenHint")}</p>}
    </FormDialog>
  );
}

function DeleteDirectory({ directory: { id, name, people, groups } }: { directory: Directory }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const remove = useChange(() => deleteDirectory(client, id), t("directories.deleted"));
  return (
    <ConfirmDialog
      danger
      title={t("directories.deleteTitle", { name })}
      description={t("directories.deleteHint", { people, groups })}
      action={t("identity.delete")}
      onConfirm={() => remove.mutate()}
      trigger={
        <Button size="sm" look="ghost" disabled={remove.isPending} aria-label={t("directories.deleteOf", { name })}>
          <Trash2 />
          {t("identity.delete")}
        </Button>
      }
    />
  );
}

/** Runs a change of a directory, says so, and loads the list again. */
function useChange(change: () => Promise<unknown>, done: string) {
  const { t } = useTranslation();
  const client = useQueryClient();
  return useMutation({
    mutationFn: () => change(),
    onSuccess: () => toast.success(done),
    onError: (error) => toastError(t, error),
    onSettled: () => invalidateDirectories(client),
  });
}

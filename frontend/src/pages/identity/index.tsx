import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { FlaskConical, Pencil, Plus, Trash2, Unlink } from "lucide-react";
import { useTranslation } from "react-i18next";
import {
  changeProvider,
  deleteProvider,
  deleteProviderLinks,
  type IdentityProvider,
  identityProvidersQuery,
  invalidateProviders,
  tryProvider,
} from "@/api/identity";
import { signInProvidersQuery } from "@/api/session";
import { Badge, Callout } from "@/ui/badge";
import { CopyText } from "@/ui/copy-button";
import { Button, ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { Page } from "@/ui/page";
import { toast } from "@/ui/toast";
import { Directories } from "./directories";
import { ProviderForm } from "./provider-form";
import { getRequiredSetting } from "./recipes";

/** The providers that people sign in with. Administrators only: the API refuses others, and the page shows why. */
export function Component() {
  const { t } = useTranslation();
  const providers = useQuery(identityProvidersQuery);
  const local = useQuery(signInProvidersQuery(null)).data?.localAccounts;
  return (
    <Page
      title={t("app.identityProviders")}
      actions={
        <>
          <ButtonLink to="/settings">{t("identity.back")}</ButtonLink>
          {providers.data && (
            <ProviderForm
              trigger={
                <Button look="primary">
                  <Plus />
                  {t("identity.add")}
                </Button>
              }
            />
          )}
        </>
      }
    >
      <div className="mb-4 max-w-3xl space-y-2 text-sm text-muted">
        <p>{t("identity.lead")}</p>
        {local !== undefined && <p>{t(local ? "identity.passwordsOn" : "identity.passwordsOff")}</p>}
      </div>
      {providers.isError && <LoadError error={providers.error} retry={() => void providers.refetch()} />}
      {providers.isPending && <Loading />}
      {providers.data?.length === 0 && <EmptyState title={t("identity.none")} />}
      <ul className="space-y-4">
        {providers.data?.map((each) => (
          <li key={each.id}>
            <Provider provider={each} />
          </li>
        ))}
      </ul>
      {providers.data && <Directories providers={providers.data} />}
    </Page>
  );
}

function Provider({ provider }: { provider: IdentityProvider }) {
  const { t } = useTranslation();
  const { id, name, kind, clientId, enabled, readonly, callbackUrl, metadataUrl, logoutUrl, linkCount, settings } =
    provider;
  const values = settings as Record<string, unknown>;
  const text = (key: string) => (typeof values[key] === "string" ? values[key] : "");
  const required = getRequiredSetting(kind);
  const facts: [label: string, value: string][] =
    kind === "saml"
      ? [
          [t("identity.id"), id],
          [t("identity.saml.entityId"), text("entity_id")],
          [t("identity.saml.metadataUrl"), text("metadata_url") || t("identity.saml.readOnce")],
        ]
      : kind === "ldap"
        ? [
            [t("identity.id"), id],
            [t("identity.directory"), text("server_url")],
          ]
        : [
            [t("identity.id"), id],
            [t(`identity.required.${required}`), text(required)],
            [t("identity.clientId"), clientId],
          ];
  return (
    <Card
      title={
        <span className="flex flex-wrap items-center gap-2">
          <span className="break-words">{name}</span>
          <Badge>{t(`identity.kindOf.${kind}`)}</Badge>
          <Badge tone={enabled ? "ok" : "idle"}>{t(enabled ? "identity.enabled" : "identity.disabled")}</Badge>
        </span>
      }
      aside={<Actions provider={provider} />}
    >
      <dl className="grid items-center gap-x-4 gap-y-1 text-sm sm:grid-cols-[10rem_minmax(0,1fr)]">
        {facts.map(([label, value]) => (
          <div key={label} className="contents">
            <dt className="text-muted">{label}</dt>
            <dd className="break-all">{value}</dd>
          </div>
        ))}
        {kind !== "ldap" && (
          <>
            <dt className="text-muted">{t(kind === "saml" ? "identity.saml.consumer" : "identity.callback")}</dt>
            <dd>
              <CopyText text={callbackUrl} />
            </dd>
          </>
        )}
        {metadataUrl !== null && (
          <>
            <dt className="text-muted">{t("identity.saml.platform")}</dt>
            <dd>
              <CopyText text={metadataUrl} />
            </dd>
          </>
        )}
        {logoutUrl !== null && (
          <>
            <dt className="text-muted">{t("identity.logout")}</dt>
            <dd>
              <CopyText text={logoutUrl} />
            </dd>
          </>
        )}
        <dt className="text-muted">{t("identity.links")}</dt>
        <dd className="flex flex-wrap items-center gap-2">
          <span>{t("identity.linkCount", { count: linkCount })}</span>
          {linkCount > 0 && <DeleteLinks provider={provider} />}
        </dd>
      </dl>
      {readonly && (
        <div className="mt-3">
          <Callout tone="info">{t("identity.readonly")}</Callout>
        </div>
      )}
    </Card>
  );
}

function Actions({ provider }: { provider: IdentityProvider }) {
  const { t } = useTranslation();
  const { id, name, enabled, readonly } = provider;
  const toggle = useChange(() => changeProvider(id, { enabled: !enabled }));
  const remove = useChange(() => deleteProvider(id));
  return (
    <div className="flex flex-wrap justify-end gap-2">
      {provider.kind !== "ldap" && <Trial provider={provider} />}
      {!readonly && (
        <>
          <Button size="sm" disabled={toggle.isPending} onClick={() => toggle.mutate()}>
            {t(enabled ? "identity.disable" : "identity.enable")}
          </Button>
          <ProviderForm
            provider={provider}
            trigger={
              <Button size="sm" aria-label={t("identity.editOf", { name })}>
                <Pencil />
                {t("identity.edit")}
              </Button>
            }
          />
          <ConfirmDialog
            danger
            title={t("identity.deleteTitle", { name })}
            description={t("identity.deleteHint", { count: provider.linkCount })}
            action={t("identity.delete")}
            onConfirm={() => remove.mutate()}
            trigger={
              <Button size="sm" look="ghost" disabled={remove.isPending} aria-label={t("identity.deleteOf", { name })}>
                <Trash2 />
                {t("identity.delete")}
              </Button>
            }
          />
        </>
      )}
    </div>
  );
}

/** Signs in at the provider in a second window, which ends at a page with the claims. */
function Trial({ provider: { id, name } }: { provider: IdentityProvider }) {
  const { t } = useTranslation();
  const trial = useMutation({
    mutationFn: async (shown: Window | null) => {
      const { url } = await tryProvider(id);
      if (shown) shown.location.href = url;
      else location.assign(url); // the browser opens no windows
    },
    onError: (error, shown) => {
      shown?.close();
      toastError(t, error);
    },
  });
  return (
    <Button
      size="sm"
      disabled={trial.isPending}
      aria-label={t("identity.testOf", { name })}
      title={t("identity.testHint")}
      onClick={() => {
        // Only a click opens a window: one that opens after the answer is blocked.
        const shown = window.open("about:blank", "_blank");
        if (shown) shown.opener = null;
        trial.mutate(shown);
      }}
    >
      <FlaskConical />
      {t("identity.test")}
    </Button>
  );
}

function DeleteLinks({ provider: { id, name, linkCount } }: { provider: IdentityProvider }) {
  const { t } = useTranslation();
  const remove = useChange(() => deleteProviderLinks(id));
  return (
    <ConfirmDialog
      danger
      title={t("identity.unlinkTitle", { name })}
      description={t("identity.unlinkHint", { count: linkCount })}
      action={t("identity.unlink")}
      onConfirm={() => remove.mutate()}
      trigger={
        <Button size="sm" look="ghost" disabled={remove.isPending}>
          <Unlink />
          {t("identity.unlink")}
        </Button>
      }
    />
  );
}

/** Runs a change of a provider, and loads the list again. */
function useChange(change: () => Promise<unknown>) {
  const { t } = useTranslation();
  const client = useQueryClient();
  return useMutation({
    mutationFn: change,
    onSuccess: () => toast.success(t("identity.saved")),
    onError: (error) => toastError(t, error),
    onSettled: () => invalidateProviders(client),
  });
}

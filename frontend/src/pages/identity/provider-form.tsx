import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { useTranslation } from "react-i18next";
import { changeProvider, createProvider, type IdentityProvider, invalidateProviders } from "@/api/identity";
import { Callout } from "@/ui/badge";
import { CopyButton } from "@/ui/copy-button";
import { Field } from "@/ui/field";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { toast } from "@/ui/toast";
import { buildBody, buildCallbackUrl, FIELDS, getRequiredSetting, isVendor, type Kind, RECIPES } from "./recipes";

interface ProviderFormProps {
  /** Undefined: a new one. */
  provider?: IdentityProvider;
  trigger: ReactNode;
}

export function ProviderForm({ provider, trigger }: ProviderFormProps) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [kind, setKind] = useState<Kind>(provider?.kind ?? "keycloak");
  const [id, setId] = useState(provider?.id ?? "");
  const settings = (provider?.settings ?? {}) as Record<string, unknown>;
  const save = async (texts: Record<string, string>) => {
    const body = buildBody(kind, texts, settings);
    if (provider) await changeProvider(provider.id, body);
    else await createProvider({ ...body, id, kind });
    await invalidateProviders(client);
    toast.success(t("identity.saved"));
  };
  const text = (key: string) => (typeof settings[key] === "string" ? settings[key] : "");
  const required = getRequiredSetting(kind);
  const words = (key: string) => (Array.isArray(settings[key]) ? settings[key].join(", ") : "");
  return (
    <FormDialog
      wide
      title={provider ? t("identity.editOf", { name: provider.name }) : t("identity.add")}
      submit={t("app.save")}
      fields={FIELDS}
      onSubmit={save}
      trigger={trigger}
    >
      {(problem) => (
        <>
          {!provider && (
            <div className="grid items-start gap-4 sm:grid-cols-2">
              <Field label={t("identity.kind")} error={problem("kind")}>
                {(wiring) => (
                  <select
                    {...wiring}
                    name="kind"
                    className="control"
                    value={kind}
                    onChange={({ target }) => setKind(target.value as Kind)}
                  >
                    {(Object.keys(RECIPES) as Kind[]).map((each) => (
                      <option key={each} value={each}>
                        {t(`identity.kindOf.${each}`)}
                      </option>
                    ))}
                  </select>
                )}
              </Field>
              <Field label={t("identity.id")} hint={t("identity.idHint")} error={problem("id")}>
                {(wiring) => (
                  <input
                    {...wiring}
                    name="id"
                    required
                    maxLength={40}
                    autoComplete="off"
                    className="control"
                    value={id}
                    onChange={({ target }) => setId(target.value.trim())}
                  />
                )}
              </Field>
            </div>
          )}
          <Callout tone="info">
            <p>{t("identity.atProvider")}</p>
            <CallbackUrl url={provider?.callbackUrl ?? buildCallbackUrl(id, kind)} />
            <p className="mt-1">{t(`identity.recipe.${kind}`)}</p>
          </Callout>
          <div className="grid items-start gap-4 sm:grid-cols-2">
            <TextField
              name="name"
              label={t("identity.name")}
              hint={t("identity.nameHint")}
              required
              maxLength={40}
              defaultValue={provider?.name}
              error={problem("name")}
            />
            <TextField
              key={required}
              name={`settings.${required}`}
              label={t(`identity.required.${required}`)}
              hint={t("identity.requiredHint", { example: RECIPES[kind] })}
              required
              maxLength={2000}
              defaultValue={text(required)}
              error={problem(`settings.${required}`)}
            />
            <TextField
              name="clientId"
              label={t("identity.clientId")}
              required
              maxLength={191}
              defaultValue={provider?.clientId}
              error={problem("clientId")}
            />
            <Field
              label={t("identity.secret")}
              hint={t(provider?.hasSecret ? "identity.secretKept" : "identity.secretHint")}
              error={problem("secret")}
            >
              {(wiring) => (
                <input
                  {...wiring}
                  name="secret"
                  type="password"
                  maxLength={2000}
                  autoComplete="new-password"
                  className="control"
                />
              )}
            </Field>
            {!isVendor(kind) && (
              <TextField
                name="settings.allowed_domains"
                label={t("identity.domains")}
                hint={t("identity.domainsHint")}
                defaultValue={words("allowed_domains")}
                error={problem("settings.allowed_domains")}
              />
            )}
            <TextField
              name="settings.groups_claim"
              label={t("identity.groups")}
              hint={t("identity.groupsHint")}
              defaultValue={text("groups_claim")}
              error={problem("settings.groups_claim")}
            />
            {!isVendor(kind) && (
              <TextField
                name="settings.scopes"
                label={t("identity.scopes")}
                hint={t("identity.scopesHint")}
                defaultValue={words("scopes")}
                error={problem("settings.scopes")}
              />
            )}
          </div>
          <Flag
            name="settings.create_users"
            label={t("identity.createUsers")}
            hint={t("identity.createUsersHint")}
            checked={settings.create_users !== false}
          />
          {isVendor(kind) ? (
            <Flag
              name="settings.fetch_groups"
              label={t("identity.fetchGroups")}
              hint={t("identity.fetchGroupsHint")}
              checked={settings.fetch_groups === true}
            />
          ) : (
            <Flag
              name="settings.link_by_verified_email"
              label={t("identity.linkByEmail")}
              hint={t("identity.linkByEmailHint")}
              checked={settings.link_by_verified_email === true}
            />
          )}
        </>
      )}
    </FormDialog>
  );
}

/** The address to be entered at the provider. */
export function CallbackUrl({ url }: { url: string }) {
  return (
    <p className="flex items-center gap-1 font-mono text-xs">
      <code className="min-w-0 break-all select-all">{url}</code>
      <CopyButton text={url} />
    </p>
  );
}

function Flag({ name, label, hint, checked }: { name: string; label: string; hint: string; checked: boolean }) {
  return (
    <label className="flex items-start gap-2 text-sm">
      <input type="checkbox" name={name} className="mt-1" defaultChecked={checked} />
      <span>
        {label}
        <span className="block text-muted">{hint}</span>
      </span>
    </label>
  );
}

import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { useTranslation } from "react-i18next";
import { changeProvider, createProvider, type IdentityProvider, invalidateProviders } from "@/api/identity";
import { Callout } from "@/ui/badge";
import { Field } from "@/ui/field";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { toast } from "@/ui/toast";
import { CallbackUrl, Flag } from "./parts";
import { SamlFields } from "./saml-fields";
import { buildSamlBody, SAML_FIELDS } from "./saml";
import { buildBody, buildCallbackUrl, FIELDS, type Kind, RECIPES } from "./recipes";

interface ProviderFormProps {
  /** Undefined: a new one. */
  provider?: IdentityProvider;
  trigger: ReactNode;
}

export function ProviderForm({ provider, trigger }: ProviderFormProps) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [kind, setKind] = useState<Kind>(provider && provider.kind !== "ldap" ? provider.kind : "keycloak");
  const [id, setId] = useState(provider?.id ?? "");
  const settings = (provider?.settings ?? {}) as Record<string, unknown>;
  const save = async (texts: Record<string, string>) => {
    const body = kind === "saml" ? buildSamlBody(texts, settings) : buildBody(texts, settings);
    if (provider) await changeProvider(provider.id, body);
    else await createProvider({ ...body, id, kind });
    await invalidateProviders(client);
    toast.success(t("identity.saved"));
  };
  const text = (key: string) => (typeof settings[key] === "string" ? settings[key] : "");
  const words = (key: string) => (Array.isArray(settings[key]) ? settings[key].join(", ") : "");
  return (
    <FormDialog
      wide
      title={provider ? t("identity.editOf", { name: provider.name }) : t("identity.add")}
      submit={t("app.save")}
      fields={kind === "saml" ? SAML_FIELDS : FIELDS}
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
                    {[...(Object.keys(RECIPES) as Kind[]), "saml" as const].map((each) => (
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
          {kind === "saml" ? (
            <SamlFields id={id} provider={provider} problem={problem} />
          ) : (
            <>
              <Callout tone="info">
                <p>{t("identity.atProvider")}</p>
                <CallbackUrl url={provider?.callbackUrl ?? buildCallbackUrl(id)} />
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
                  name="settings.server_url"
                  label={t("identity.serverUrl")}
                  hint={t("identity.serverUrlHint", { example: RECIPES[kind] })}
                  required
                  maxLength={2000}
                  defaultValue={text("server_url")}
                  error={problem("settings.server_url")}
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
                <TextField
                  name="settings.allowed_domains"
                  label={t("identity.domains")}
                  hint={t("identity.domainsHint")}
                  defaultValue={words("allowed_domains")}
                  error={problem("settings.allowed_domains")}
                />
                <TextField
                  name="settings.groups_claim"
                  label={t("identity.groups")}
                  hint={t("identity.groupsHint")}
                  defaultValue={text("groups_claim")}
                  error={problem("settings.groups_claim")}
                />
                <TextField
                  name="settings.scopes"
                  label={t("identity.scopes")}
                  hint={t("identity.scopesHint")}
                  defaultValue={words("scopes")}
                  error={problem("settings.scopes")}
                />
              </div>
            </>
          )}
          <Flag
            name="settings.create_users"
            label={t("identity.createUsers")}
            hint={t("identity.createUsersHint")}
            checked={settings.create_users !== false}
          />
          <Flag
            name="settings.link_by_verified_email"
            label={t("identity.linkByEmail")}
            hint={t("identity.linkByEmailHint")}
            checked={settings.link_by_verified_email === true}
          />
        </>
      )}
    </FormDialog>
  );
}

import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { useTranslation } from "react-i18next";
import { changeProvider, createProvider, type IdentityProvider, invalidateProviders } from "@/api/identity";
import { Field } from "@/ui/field";
import { FormDialog } from "@/ui/form-dialog";
import { toast } from "@/ui/toast";
import { ClientFields } from "./client-fields";
import { Flag } from "./parts";
import { SamlFields } from "./saml-fields";
import { buildSamlBody, SAML_FIELDS } from "./saml";
import { buildBody, FIELDS, isVendor, type Kind, RECIPES } from "./recipes";

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
    const body = kind === "saml" ? buildSamlBody(texts, settings) : buildBody(kind, texts, settings);
    if (provider) await changeProvider(provider.id, body);
    else await createProvider({ ...body, id, kind });
    await invalidateProviders(client);
    toast.success(t("identity.saved"));
  };
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
            <ClientFields id={id} kind={kind} provider={provider} problem={problem} />
          )}
          <Flag
            name="settings.create_users"
            label={t("identity.createUsers")}
            hint={t("identity.createUsersHint")}
            checked={settings.create_users !== false}
          />
          {!isVendor(kind) && (
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

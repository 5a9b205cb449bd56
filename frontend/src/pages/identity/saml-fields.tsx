import { useState } from "react";
import { useTranslation } from "react-i18next";
import type { IdentityProvider } from "@/api/identity";
import { Callout } from "@/ui/badge";
import { CopyText } from "@/ui/copy-button";
import { Field } from "@/ui/field";
import { TextField } from "@/ui/form-dialog";
import { Flag } from "./parts";
import { buildSamlUrls, getNames, type Product, PRODUCTS } from "./saml";

interface SamlFieldsProps {
  id: string;
  provider: IdentityProvider | undefined;
  problem: (field: string) => string | undefined;
}

/** The fields of a SAML provider, with what to enter at the products that firms have. */
export function SamlFields({ id, provider, problem }: SamlFieldsProps) {
  const { t } = useTranslation();
  const [product, setProduct] = useState<Product>("entra");
  const settings = (provider?.settings ?? {}) as Record<string, unknown>;
  const text = (key: string) => (typeof settings[key] === "string" ? settings[key] : "");
  const urls = provider ? { consumer: provider.callbackUrl, platform: provider.metadataUrl ?? "" } : buildSamlUrls(id);
  const domains = Array.isArray(settings.allowed_domains) ? settings.allowed_domains.join(", ") : "";
  return (
    <>
      <Callout tone="info">
        <div className="space-y-2">
          <label className="flex flex-wrap items-center gap-2">
            {t("identity.saml.product")}
            <select
              className="control w-auto"
              value={product}
              onChange={({ target }) => setProduct(target.value as Product)}
            >
              {PRODUCTS.map((each) => (
                <option key={each} value={each}>
                  {t(`identity.saml.productOf.${each}`)}
                </option>
              ))}
            </select>
          </label>
          <p>{t("identity.saml.consumer")}</p>
          <CopyText text={urls.consumer} />
          <p>{t("identity.saml.platform")}</p>
          <CopyText text={urls.platform} />
          <p>{t(`identity.saml.recipe.${product}`)}</p>
        </div>
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
          name="settings.metadata_url"
          label={t("identity.saml.metadataUrl")}
          hint={t("identity.saml.metadataUrlHint")}
          maxLength={2000}
          defaultValue={text("metadata_url")}
          error={problem("settings.metadata_url")}
        />
      </div>
      <LongField
        name="settings.metadata"
        label={t("identity.saml.metadata")}
        hint={t("identity.saml.metadataHint")}
        maxLength={300_000}
        error={problem("settings.metadata")}
      />
      <details className="space-y-4" open={provider ? text("metadata_url") === "" : undefined}>
        <summary className="cursor-pointer text-sm">{t("identity.saml.more")}</summary>
        <div className="grid items-start gap-4 sm:grid-cols-2">
          <TextField
            name="settings.entity_id"
            label={t("identity.saml.entityId")}
            maxLength={2000}
            defaultValue={text("entity_id")}
            error={problem("settings.entity_id")}
          />
          <TextField
            name="settings.sso_url"
            label={t("identity.saml.ssoUrl")}
            hint={t("identity.saml.ssoUrlHint")}
            maxLength={2000}
            defaultValue={text("sso_url")}
            error={problem("settings.sso_url")}
          />
        </div>
        <LongField
          name="settings.x509"
          label={t("identity.saml.certificates")}
          hint={t("identity.saml.certificatesHint")}
          maxLength={40_000}
          defaultValue={text("x509")}
          error={problem("settings.x509")}
        />
      </details>
      <div className="grid items-start gap-4 sm:grid-cols-2">
        <TextField
          name="groups"
          label={t("identity.saml.groupNames")}
          hint={t("identity.saml.groupNamesHint")}
          maxLength={2000}
          defaultValue={getNames(settings, "groups").join(", ")}
          error={problem("settings.attributes")}
        />
        <TextField
          name="uid"
          label={t("identity.saml.uidNames")}
          hint={t("identity.saml.uidNamesHint")}
          maxLength={2000}
          defaultValue={getNames(settings, "uid").join(", ")}
          error={undefined}
        />
        <TextField
          name="settings.allowed_domains"
          label={t("identity.domains")}
          hint={t("identity.domainsHint")}
          defaultValue={domains}
          error={problem("settings.allowed_domains")}
        />
      </div>
      <Flag
        name="settings.vouches_for_emails"
        label={t("identity.saml.vouches")}
        hint={t("identity.saml.vouchesHint")}
        checked={settings.vouches_for_emails === true}
      />
    </>
  );
}

interface LongFieldProps {
  name: string;
  label: string;
  hint: string;
  maxLength: number;
  defaultValue?: string;
  error: string | undefined;
}

function LongField({ label, hint, error, ...area }: LongFieldProps) {
  return (
    <Field label={label} hint={hint} error={error}>
      {(wiring) => (
        <textarea
          {...wiring}
          {...area}
          rows={3}
          spellCheck={false}
          autoComplete="off"
          className="control h-20 font-mono text-xs"
        />
      )}
    </Field>
  );
}

import { useTranslation } from "react-i18next";
import type { IdentityProvider } from "@/api/identity";
import { Callout } from "@/ui/badge";
import { CopyText } from "@/ui/copy-button";
import { Field } from "@/ui/field";
import { TextField } from "@/ui/form-dialog";
import { Flag } from "./parts";
import {
  buildCallbackUrl,
  getRequiredSetting,
  isAskedLater,
  isVendor,
  type Kind,
  listWords,
  OFFLINE_ACCESS,
  RECIPES,
} from "./recipes";

interface ClientFieldsProps {
  id: string;
  kind: Exclude<Kind, "saml">;
  provider: IdentityProvider | undefined;
  problem: (field: string) => string | undefined;
}

/** The fields of a provider at which the platform is a client with a secret, with what to enter there. */
export function ClientFields({ id, kind, provider, problem }: ClientFieldsProps) {
  const { t } = useTranslation();
  const settings = (provider?.settings ?? {}) as Record<string, unknown>;
  const required = getRequiredSetting(kind);
  const text = (key: string) => (typeof settings[key] === "string" ? settings[key] : "");
  const words = (key: string) => listWords(settings[key]).join(", ");
  return (
    <>
      <Callout tone="info">
        <p>{t("identity.atProvider")}</p>
        <CopyText text={provider?.callbackUrl ?? buildCallbackUrl(id, kind)} />
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
            defaultValue={listWords(settings.scopes)
              .filter((scope) => scope !== OFFLINE_ACCESS)
              .join(", ")}
            error={problem("settings.scopes")}
          />
        )}
      </div>
      {isVendor(kind) && (
        <Flag
          name="settings.fetch_groups"
          label={t("identity.fetchGroups")}
          hint={t("identity.fetchGroupsHint")}
          checked={settings.fetch_groups === true}
        />
      )}
      {!isVendor(kind) && <LeavingFields kind={kind} settings={settings} />}
    </>
  );
}

/** What happens here when a person leaves, or signs out. */
function LeavingFields({ kind, settings }: { kind: Kind; settings: Record<string, unknown> }) {
  const { t } = useTranslation();
  return (
    <details className="space-y-3">
      <summary className="cursor-pointer text-sm">{t("identity.leaving")}</summary>
      <Flag
        name="asked_later"
        label={t("identity.askedLater")}
        hint={t("identity.askedLaterHint")}
        checked={isAskedLater(kind, settings)}
      />
      <Flag
        name="settings.end_tokens"
        label={t("identity.endTokens")}
        hint={t("identity.endTokensHint")}
        checked={settings.end_tokens !== false}
      />
      <Flag
        name="settings.sign_out_there"
        label={t("identity.signOutThere")}
        hint={t("identity.signOutThereHint", { url: `${location.origin}/sign-in` })}
        checked={settings.sign_out_there === true}
      />
    </details>
  );
}

import type { IdentityProvider, ProviderKind } from "@/api/identity";

export type Kind = ProviderKind;

/** The kinds that have a client at the provider, in the form's order, with an example of the setting that they cannot do
 * without. */
export const RECIPES: Readonly<Record<Exclude<Kind, "saml">, string>> = {
  keycloak: "https://sso.example.org/realms/main",
  microsoft: "https://login.microsoftonline.com/TENANT-ID/v2.0",
  okta: "https://example.okta.com",
  google: "https://accounts.google.com",
  authentik: "https://sso.example.org/application/o/fermi/",
  gitlab: "https://gitlab.com",
  openid_connect: "https://sso.example.org",
  feishu: "736588c9260f175d",
  lark: "736588c9260f175d",
  dingtalk: "ding5e0f…",
  wecom: "1000002",
};

/** The setting of vendors that names whose people may sign in; other kinds have an issuer. */
const TENANT_SETTINGS: Partial<Record<IdentityProvider["kind"], "tenant_key" | "corp_id" | "agent_id">> = {
  feishu: "tenant_key",
  lark: "tenant_key",
  dingtalk: "corp_id",
  wecom: "agent_id",
};

export const isVendor = (kind: Kind) => kind in TENANT_SETTINGS;

/** Returns the name of the setting that a kind cannot do without. */
export const getRequiredSetting = (kind: IdentityProvider["kind"]) => TENANT_SETTINGS[kind] ?? "server_url";

/** Names of the form's fields, as the API names them in problems. */
export const FIELDS = [
  "id",
  "kind",
  "name",
  "clientId",
  "secret",
  "settings.server_url",
  "settings.tenant_key",
  "settings.corp_id",
  "settings.agent_id",
  "settings.fetch_groups",
  "settings.groups_claim",
  "settings.allowed_domains",
  "settings.scopes",
  "settings.end_tokens",
  "settings.sign_out_there",
  "settings.create_users",
  "settings.link_by_verified_email",
] as const;

/** The scope by which a provider gives a refresh token, so that it can be asked about people later. */
export const OFFLINE_ACCESS = "offline_access";

/** Returns the texts of a setting that is a list. */
export const listWords = (value: unknown): string[] => (Array.isArray(value) ? (value as string[]) : []);

/** Returns the words of a text, which commas or white space separate. */
const splitWords = (text = "") => text.split(/[\s,，]+/).filter(Boolean);

/** Returns whether the provider is asked later about people who are signed in. Google has a parameter for it. */
export const isAskedLater = (kind: Kind, settings: Record<string, unknown>) =>
  kind === "google"
    ? readParameters(settings).access_type === "offline"
    : listWords(settings.scopes).includes(OFFLINE_ACCESS);

const readParameters = (settings: Record<string, unknown>) => (settings.auth_params ?? {}) as Record<string, unknown>;

/** Returns the scopes and parameters by which a provider gives a refresh token, or none. */
function buildAccess(kind: Kind, texts: Record<string, string>, before: Record<string, unknown>) {
  const on = texts.asked_later === "on";
  const scopes = splitWords(texts["settings.scopes"]);
  if (kind !== "google") return { scopes: on ? [...new Set([...scopes, OFFLINE_ACCESS])] : scopes };
  const { access_type, ...others } = readParameters(before);
  const parameters = on
    ? { ...others, access_type: "offline" }
    : { ...others, ...(access_type !== "offline" && access_type !== undefined && { access_type }) };
  return { scopes, auth_params: Object.keys(parameters).length > 0 ? parameters : "" };
}

/** Returns the body of a request. Settings that the form does not show stay as they are in `before`. */
export function buildBody(kind: Kind, texts: Record<string, string>, before: Record<string, unknown> = {}) {
  const required = getRequiredSetting(kind);
  const settings = {
    ...before,
    [required]: texts[`settings.${required}`] ?? "",
    create_users: texts["settings.create_users"] === "on",
    groups_claim: texts["settings.groups_claim"] ?? "",
    ...(isVendor(kind)
      ? { fetch_groups: texts["settings.fetch_groups"] === "on" }
      : {
          link_by_verified_email: texts["settings.link_by_verified_email"] === "on",
          allowed_domains: splitWords(texts["settings.allowed_domains"]),
          ...buildAccess(kind, texts, before),
          end_tokens: texts["settings.end_tokens"] === "on",
          sign_out_there: texts["settings.sign_out_there"] === "on",
        }),
  };
  const isEmpty = (value: unknown) => value === "" || (Array.isArray(value) && value.length === 0);
  return {
    name: texts.name ?? "",
    clientId: texts.clientId ?? "",
    settings: Object.fromEntries(Object.entries(settings).filter(([, value]) => !isEmpty(value))),
    ...(texts.secret && { secret: texts.secret }),
  };
}

/** Returns the address that a provider sends people back to. */
export const buildCallbackUrl = (id: string, kind: Kind) =>
  `${location.origin}/auth/${isVendor(kind) ? "vendors" : "oidc"}/${id || "…"}/login/callback/`;

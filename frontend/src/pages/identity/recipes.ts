import type { ProviderKind } from "@/api/identity";

export type Kind = ProviderKind;

/** The kinds in the form's order, with the form of their issuer's address. */
export const RECIPES: Readonly<Record<Exclude<Kind, "saml">, string>> = {
  keycloak: "https://sso.example.org/realms/main",
  microsoft: "https://login.microsoftonline.com/TENANT-ID/v2.0",
  okta: "https://example.okta.com",
  google: "https://accounts.google.com",
  authentik: "https://sso.example.org/application/o/fermi/",
  gitlab: "https://gitlab.com",
  openid_connect: "https://sso.example.org",
};

/** Names of the form's fields, as the API names them in problems. */
export const FIELDS = [
  "id",
  "kind",
  "name",
  "clientId",
  "secret",
  "settings.server_url",
  "settings.groups_claim",
  "settings.allowed_domains",
  "settings.scopes",
  "settings.create_users",
  "settings.link_by_verified_email",
] as const;

/** Returns the words of a text, which commas or white space separate. */
const splitWords = (text = "") => text.split(/[\s,，]+/).filter(Boolean);

/** Returns the body of a request. Settings that the form does not show stay as they are in `before`. */
export function buildBody(texts: Record<string, string>, before: Record<string, unknown> = {}) {
  const settings = {
    ...before,
    server_url: texts["settings.server_url"] ?? "",
    create_users: texts["settings.create_users"] === "on",
    link_by_verified_email: texts["settings.link_by_verified_email"] === "on",
    groups_claim: texts["settings.groups_claim"] ?? "",
    allowed_domains: splitWords(texts["settings.allowed_domains"]),
    scopes: splitWords(texts["settings.scopes"]),
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
export const buildCallbackUrl = (id: string) => `${location.origin}/auth/oidc/${id || "…"}/login/callback/`;

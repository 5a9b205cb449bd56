/** What an administrator can choose as the product, for what to enter there. It is not stored. */
export const PRODUCTS = ["entra", "okta", "keycloak", "adfs", "other"] as const;
export type Product = (typeof PRODUCTS)[number];

const READ = ["entity_id", "sso_url", "x509"] as const;

/** Names of the form's fields, as the API names them in problems. */
export const SAML_FIELDS = [
  "id",
  "kind",
  "name",
  "settings.metadata_url",
  "settings.metadata",
  "settings.entity_id",
  "settings.sso_url",
  "settings.x509",
  "settings.attributes",
  "settings.allowed_domains",
  "settings.create_users",
  "settings.link_by_verified_email",
  "settings.vouches_for_emails",
] as const;

const splitWords = (text = "") => text.split(/[\s,，]+/).filter(Boolean);

/** Returns the attributes that say `field`, which the settings name. */
export function getNames(settings: Record<string, unknown>, field: string): string[] {
  const names = (settings.attributes as Record<string, unknown> | undefined)?.[field];
  return Array.isArray(names) ? (names as string[]) : [];
}

/**
 * Returns the body of a request. Settings that the form does not show stay as they are in `before`. What was read from
 * other metadata before is left out, so that the platform does not look for it in the new one.
 */
export function buildSamlBody(texts: Record<string, string>, before: Record<string, unknown> = {}) {
  const text = (key: string) => (texts[`settings.${key}`] ?? "").replaceAll("\r\n", "\n");
  const on = (key: string) => text(key) === "on";
  const url = text("metadata_url");
  const isNew = text("metadata") !== "" || url !== (before.metadata_url ?? "");
  const read = Object.fromEntries(
    READ.map((key) => [key, isNew && text(key) === (before[key] ?? "") ? "" : text(key)]),
  );
  const attributes = { ...(before.attributes as Record<string, unknown> | undefined) };
  for (const [field, words] of [
    ["groups", splitWords(texts.groups)],
    ["uid", splitWords(texts.uid)],
  ] as const) {
    if (words.length > 0) attributes[field] = words;
    else Reflect.deleteProperty(attributes, field);
  }
  const settings = {
    ...before,
    metadata_url: url,
    metadata: text("metadata"),
    ...read,
    attributes: Object.keys(attributes).length > 0 ? attributes : "",
    allowed_domains: splitWords(text("allowed_domains")),
    create_users: on("create_users"),
    link_by_verified_email: on("link_by_verified_email"),
    vouches_for_emails: on("vouches_for_emails"),
  };
  const isEmpty = (value: unknown) => value === "" || (Array.isArray(value) && value.length === 0);
  return {
    name: texts.name ?? "",
    settings: Object.fromEntries(Object.entries(settings).filter(([, value]) => !isEmpty(value))),
  };
}

/** Returns the addresses that a provider gets: where it sends answers, and where it reads about this platform. */
export const buildSamlUrls = (id: string) => ({
  consumer: `${location.origin}/auth/saml/${id || "…"}/acs/`,
  platform: `${location.origin}/auth/saml/${id || "…"}/metadata/`,
});

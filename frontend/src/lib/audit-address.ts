/** Returns the address of the audit trail with these filters. */
export const buildAuditAddress = (
  filters: Partial<Record<"project" | "actor" | "action" | "target" | "token" | "address", string>>,
) => `/audit?${new URLSearchParams(filters).toString()}`;

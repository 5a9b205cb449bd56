import type { RoleRule, RoleRuleRequest } from "@/api/role-rules";

export type Target = "project" | "group" | "administrator";
export type Match = "exact" | "prefix";

/** The claims that the platform makes of a directory's groups. */
export const DIRECTORY_CLAIMS = ["groups", "externalId"] as const;

/** A rule as the form shows it. */
export interface Draft {
  provider: string;
  claim: string;
  match: Match;
  group: string;
  target: Target;
  projectId: string;
  role: "viewer" | "member" | "maintainer";
}

export const EMPTY_DRAFT: Draft = {
  provider: "",
  claim: "groups",
  match: "exact",
  group: "",
  target: "project",
  projectId: "",
  role: "member",
};

/** Returns the group that a pattern names, or its beginning. */
export const splitPattern = (pattern: string): Pick<Draft, "match" | "group"> =>
  pattern.endsWith("*") ? { match: "prefix", group: pattern.slice(0, -1) } : { match: "exact", group: pattern };

export const makeDraft = (rule: RoleRule): Draft => ({
  provider: rule.provider,
  claim: rule.claim,
  ...splitPattern(rule.pattern),
  target: rule.administrator ? "administrator" : rule.createProject ? "group" : "project",
  projectId: rule.projectId ?? "",
  role: (rule.role || "member") as Draft["role"],
});

export const buildRule = (draft: Draft): RoleRuleRequest => ({
  provider: draft.provider,
  claim: draft.claim,
  pattern: draft.match === "prefix" ? `${draft.group}*` : draft.group,
  projectId: draft.target === "project" ? draft.projectId || null : null,
  createProject: draft.target === "group",
  administrator: draft.target === "administrator",
  role: draft.target === "administrator" ? "" : draft.role,
});

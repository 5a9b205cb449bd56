import { keepPreviousData, type QueryClient, queryOptions } from "@tanstack/react-query";
import type { components } from "./schema";
import { http, unwrapResponse } from "./client";

export type RoleRule = components["schemas"]["RoleRuleItem"];
export type RoleRuleRequest = components["schemas"]["RoleRuleRequest"];
export type RoleRulePreview = components["schemas"]["RoleRulePreview"];
export type RoleRuleChange = components["schemas"]["RoleRuleChange"];

const PAGE = 50;
const key = ["role-rules"] as const;

export const roleRulesQuery = (filters: { search: string; page: number }) =>
  queryOptions({
    queryKey: [...key, filters],
    queryFn: () =>
      unwrapResponse(http.GET("/api/v1/role-rules", { params: { query: { ...filters, pageSize: PAGE } } })),
    placeholderData: keepPreviousData,
  });

/** Marks as old what a change of the rules may have changed: the rules, people's roles, the projects. */
export const invalidateRoleRules = (client: QueryClient) =>
  Promise.all(
    [key, ["people"], ["members"], ["session", "me"]].map((queryKey) => client.invalidateQueries({ queryKey })),
  );

/** Returns what would change. `rule` alone: added; both: replaced; `ruleId` alone: deleted. */
export const previewRoleRules = (body: { ruleId?: string; rule?: RoleRuleRequest }) =>
  unwrapResponse(http.POST("/api/v1/role-rules/preview", { body }));

/** Saves a rule, a new one without `id`. `fingerprint`: of the preview. */
export const saveRoleRule = (id: string | undefined, rule: RoleRuleRequest, fingerprint: string) => {
  const body = { ...rule, fingerprint };
  return unwrapResponse(
    id === undefined
      ? http.POST("/api/v1/role-rules", { body })
      : http.PUT("/api/v1/role-rules/{rule_id}", { params: { path: { rule_id: id } }, body }),
  );
};

export const deleteRoleRule = (id: string, fingerprint: string) =>
  unwrapResponse(
    http.DELETE("/api/v1/role-rules/{rule_id}", { params: { path: { rule_id: id }, query: { fingerprint } } }),
  );

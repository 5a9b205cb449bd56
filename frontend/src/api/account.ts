import { type QueryClient, queryOptions } from "@tanstack/react-query";
import { fetchAllPages, http, unwrapResponse } from "./client";
import type { ExchangeRuleChange, ExchangeRuleRequest, Member, TokenRequest } from "./types";

const PAGE = 100;

export const accountKeys = {
  tokens: ["tokens"] as const,
  members: (project: string) => ["members", project] as const,
  serviceAccounts: (project: string) => ["service-accounts", project] as const,
  projectTokens: (project: string) => ["project-tokens", project] as const,
  exchangeRules: (project: string) => ["exchange-rules", project] as const,
  secrets: (project: string) => ["secrets", project] as const,
};

export const tokensQuery = queryOptions({
  queryKey: accountKeys.tokens,
  queryFn: () =>
    fetchAllPages((page) =>
      unwrapResponse(http.GET("/api/v1/tokens", { params: { query: { page, pageSize: PAGE } } })),
    ),
});

/** Loads again what lists tokens: one may be in a person's list and in those of projects. */
export const refreshTokens = (client: QueryClient) =>
  Promise.all(
    [["tokens"], ["project-tokens"], ["service-accounts"], ["exchange-rules"]].map((queryKey) =>
      client.invalidateQueries({ queryKey }),
    ),
  );

/** Creates an API token. Only this answer holds the token itself. */
export const createToken = (body: TokenRequest) => unwrapResponse(http.POST("/api/v1/tokens", { body }));

export const revokeToken = (id: string) =>
  unwrapResponse(http.DELETE("/api/v1/tokens/{token_id}", { params: { path: { token_id: id } } }));

export const revokeTokens = (ids: string[]) => unwrapResponse(http.POST("/api/v1/tokens/revoke", { body: { ids } }));

/** The tokens that are limited to the project alone, and those of its service accounts. */
export const projectTokensQuery = (project: string) =>
  queryOptions({
    queryKey: accountKeys.projectTokens(project),
    queryFn: () =>
      fetchAllPages((page) =>
        unwrapResponse(
          http.GET("/api/v1/projects/{project_id}/tokens", {
            params: { path: { project_id: project }, query: { page, pageSize: PAGE } },
          }),
        ),
      ),
  });

export const revokeProjectToken = (project: string, id: string) =>
  unwrapResponse(
    http.DELETE("/api/v1/projects/{project_id}/tokens/{token_id}", {
      params: { path: { project_id: project, token_id: id } },
    }),
  );

export const serviceAccountsQuery = (project: string) =>
  queryOptions({
    queryKey: accountKeys.serviceAccounts(project),
    queryFn: () =>
      fetchAllPages((page) =>
        unwrapResponse(
          http.GET("/api/v1/projects/{project_id}/service-accounts", {
            params: { path: { project_id: project }, query: { page, pageSize: PAGE } },
          }),
        ),
      ),
  });

export const createServiceAccount = (project: string, body: { name: string; role: Member["role"] }) =>
  unwrapResponse(
    http.POST("/api/v1/projects/{project_id}/service-accounts", { params: { path: { project_id: project } }, body }),
  );

export const changeServiceAccount = (project: string, name: string, role: Member["role"]) =>
  unwrapResponse(
    http.PATCH("/api/v1/projects/{project_id}/service-accounts/{name}", {
      params: { path: { project_id: project, name } },
      body: { role },
    }),
  );

export const deleteServiceAccount = (project: string, name: string) =>
  unwrapResponse(
    http.DELETE("/api/v1/projects/{project_id}/service-accounts/{name}", {
      params: { path: { project_id: project, name } },
    }),
  );

/** Creates a token of a service account. Only this answer holds the token itself. */
export const createServiceAccountToken = (project: string, name: string, body: TokenRequest) =>
  unwrapResponse(
    http.POST("/api/v1/projects/{project_id}/service-accounts/{name}/tokens", {
      params: { path: { project_id: project, name } },
      body,
    }),
  );

/** The rules by which pipelines get tokens of the project's service accounts. */
export const exchangeRulesQuery = (project: string) =>
  queryOptions({
    queryKey: accountKeys.exchangeRules(project),
    queryFn: () =>
      fetchAllPages((page) =>
        unwrapResponse(
          http.GET("/api/v1/projects/{project_id}/exchange-rules", {
            params: { path: { project_id: project }, query: { page, pageSize: PAGE } },
          }),
        ),
      ),
  });

/** Whose ID tokens the operator allows. */
export const exchangeIssuersQuery = queryOptions({
  queryKey: ["exchange-issuers"],
  queryFn: () => unwrapResponse(http.GET("/api/v1/exchange-issuers")),
});

export const createExchangeRule = (project: string, body: ExchangeRuleRequest) =>
  unwrapResponse(
    http.POST("/api/v1/projects/{project_id}/exchange-rules", { params: { path: { project_id: project } }, body }),
  );

export const changeExchangeRule = (project: string, id: string, body: ExchangeRuleChange) =>
  unwrapResponse(
    http.PATCH("/api/v1/projects/{project_id}/exchange-rules/{rule_id}", {
      params: { path: { project_id: project, rule_id: id } },
      body,
    }),
  );

export const deleteExchangeRule = (project: string, id: string) =>
  unwrapResponse(
    http.DELETE("/api/v1/projects/{project_id}/exchange-rules/{rule_id}", {
      params: { path: { project_id: project, rule_id: id } },
    }),
  );

export const membersQuery = (project: string) =>
  queryOptions({
    queryKey: accountKeys.members(project),
    queryFn: () =>
      fetchAllPages((page) =>
        unwrapResponse(
          http.GET("/api/v1/projects/{project_id}/members", {
            params: { path: { project_id: project }, query: { page, pageSize: PAGE } },
          }),
        ),
      ),
  });

export const addMember = (project: string, body: Member) =>
  unwrapResponse(
    http.POST("/api/v1/projects/{project_id}/members", { params: { path: { project_id: project } }, body }),
  );

export const updateMemberRole = (project: string, { username, role }: Member) =>
  unwrapResponse(
    http.PATCH("/api/v1/projects/{project_id}/members/{username}", {
      params: { path: { project_id: project, username } },
      body: { role },
    }),
  );

export const updateProjectWarmth = (project: string, warm: boolean) =>
  unwrapResponse(
    http.PUT("/api/v1/projects/{project_id}/warm", { params: { path: { project_id: project } }, body: { warm } }),
  );

export const removeMember = (project: string, username: string) =>
  unwrapResponse(
    http.DELETE("/api/v1/projects/{project_id}/members/{username}", {
      params: { path: { project_id: project, username } },
    }),
  );

/** Lists secrets by name, with who set them and when. No answer holds a value. */
export const secretsQuery = (project: string) =>
  queryOptions({
    queryKey: accountKeys.secrets(project),
    queryFn: () =>
      fetchAllPages((page) =>
        unwrapResponse(
          http.GET("/api/v1/projects/{project_id}/secrets", {
            params: { path: { project_id: project }, query: { page, pageSize: PAGE } },
          }),
        ),
      ),
  });

export const saveSecret = (project: string, name: string, value: string) =>
  unwrapResponse(
    http.PUT("/api/v1/projects/{project_id}/secrets/{name}", {
      params: { path: { project_id: project, name } },
      body: { value },
    }),
  );

export const removeSecret = (project: string, name: string) =>
  unwrapResponse(
    http.DELETE("/api/v1/projects/{project_id}/secrets/{name}", { params: { path: { project_id: project, name } } }),
  );

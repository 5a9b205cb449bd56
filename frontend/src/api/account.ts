import { queryOptions } from "@tanstack/react-query";
import { everyPage, http, unwrap } from "./client";
import type { Member } from "./types";

const PAGE = 100;

export const accountKeys = {
  tokens: ["tokens"] as const,
  members: (project: string) => ["members", project] as const,
  secrets: (project: string) => ["secrets", project] as const,
};

export const tokensQuery = queryOptions({
  queryKey: accountKeys.tokens,
  queryFn: () =>
    everyPage((page) => unwrap(http.GET("/api/v1/tokens", { params: { query: { page, pageSize: PAGE } } }))),
});

/** The answer holds the token itself, this once. */
export const createToken = (body: { name: string; expiresInDays?: number }) =>
  unwrap(http.POST("/api/v1/tokens", { body }));

export const revokeToken = (id: string) =>
  unwrap(http.DELETE("/api/v1/tokens/{token_id}", { params: { path: { token_id: id } } }));

export const membersQuery = (project: string) =>
  queryOptions({
    queryKey: accountKeys.members(project),
    queryFn: () =>
      everyPage((page) =>
        unwrap(
          http.GET("/api/v1/projects/{project_id}/members", {
            params: { path: { project_id: project }, query: { page, pageSize: PAGE } },
          }),
        ),
      ),
  });

export const createProject = (name: string) => unwrap(http.POST("/api/v1/projects", { body: { name } }));

export const addMember = (project: string, body: Member) =>
  unwrap(http.POST("/api/v1/projects/{project_id}/members", { params: { path: { project_id: project } }, body }));

export const changeRole = (project: string, { username, role }: Member) =>
  unwrap(
    http.PATCH("/api/v1/projects/{project_id}/members/{username}", {
      params: { path: { project_id: project, username } },
      body: { role },
    }),
  );

export const setWarm = (project: string, warm: boolean) =>
  unwrap(http.PUT("/api/v1/projects/{project_id}/warm", { params: { path: { project_id: project } }, body: { warm } }));

export const removeMember = (project: string, username: string) =>
  unwrap(
    http.DELETE("/api/v1/projects/{project_id}/members/{username}", {
      params: { path: { project_id: project, username } },
    }),
  );

/** Names, and who set them when: no answer has a value. */
export const secretsQuery = (project: string) =>
  queryOptions({
    queryKey: accountKeys.secrets(project),
    queryFn: () =>
      everyPage((page) =>
        unwrap(
          http.GET("/api/v1/projects/{project_id}/secrets", {
            params: { path: { project_id: project }, query: { page, pageSize: PAGE } },
          }),
        ),
      ),
  });

export const putSecret = (project: string, name: string, value: string) =>
  unwrap(
    http.PUT("/api/v1/projects/{project_id}/secrets/{name}", {
      params: { path: { project_id: project, name } },
      body: { value },
    }),
  );

export const removeSecret = (project: string, name: string) =>
  unwrap(
    http.DELETE("/api/v1/projects/{project_id}/secrets/{name}", { params: { path: { project_id: project, name } } }),
  );

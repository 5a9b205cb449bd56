import { type QueryClient, queryOptions } from "@tanstack/react-query";
import { fetchAllPages, http, unwrapResponse } from "./client";
import type { LimitsRequest, UserLimitsRequest } from "./types";

const PAGE = 100;

const limitsKey = (project: string) => ["limits", project] as const;
const projectParams = (project: string) => ({ path: { project_id: project } });
const ofUser = (project: string, username: string) => ({ path: { project_id: project, username } });

export const limitsQuery = (project: string) =>
  queryOptions({
    queryKey: [...limitsKey(project), "project"] as const,
    queryFn: () => unwrapResponse(http.GET("/api/v1/projects/{project_id}/limits", { params: projectParams(project) })),
    refetchInterval: 15_000,
  });

export const userLimitsQuery = (project: string) =>
  queryOptions({
    queryKey: [...limitsKey(project), "users"] as const,
    queryFn: () =>
      fetchAllPages((page) => {
        const params = { ...projectParams(project), query: { page, pageSize: PAGE } };
        return unwrapResponse(http.GET("/api/v1/projects/{project_id}/limits/users", { params }));
      }),
    refetchInterval: 15_000,
  });

/** The limits of one member of a project; null for other users. */
export const memberLimitsQuery = (project: string, username: string) =>
  queryOptions({
    queryKey: [...limitsKey(project), "user", username] as const,
    queryFn: async () => {
      const params = { ...projectParams(project), query: { search: username, pageSize: PAGE } };
      const found = await unwrapResponse(http.GET("/api/v1/projects/{project_id}/limits/users", { params }));
      return found.items.find((each) => each.username === username) ?? null;
    },
    refetchInterval: 15_000,
  });

export const saveLimits = (project: string, body: LimitsRequest) =>
  unwrapResponse(http.PUT("/api/v1/projects/{project_id}/limits", { params: projectParams(project), body }));

export const saveUserLimits = (project: string, username: string, body: UserLimitsRequest) =>
  unwrapResponse(
    http.PUT("/api/v1/projects/{project_id}/limits/users/{username}", { params: ofUser(project, username), body }),
  );

export const deleteUserLimits = (project: string, username: string) =>
  unwrapResponse(
    http.DELETE("/api/v1/projects/{project_id}/limits/users/{username}", { params: ofUser(project, username) }),
  );

export function invalidateLimits(client: QueryClient, project: string): Promise<void> {
  return client.invalidateQueries({ queryKey: limitsKey(project) });
}

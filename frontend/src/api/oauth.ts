import { queryOptions } from "@tanstack/react-query";
import { fetchAllPages, http, unwrapResponse } from "./client";
import type { components } from "./schema";

export type AccessRequested = components["schemas"]["AccessRequested"];

export type Grant = components["schemas"]["GrantItem"];

export const grantKeys = { grants: ["oauth-grants"] as const };

/** The programs to which the user has granted access. */
export const grantsQuery = queryOptions({
  queryKey: grantKeys.grants,
  queryFn: () =>
    fetchAllPages((page) =>
      unwrapResponse(http.GET("/api/v1/oauth/grants", { params: { query: { page, pageSize: 100 } } })),
    ),
});

export const endGrant = (id: string) =>
  unwrapResponse(http.DELETE("/api/v1/oauth/grants/{grant_id}", { params: { path: { grant_id: id } } }));

/** What the person chose. `projects` null: all of them, also those of later. */
export interface Choice {
  scopes: string[];
  projects: string[] | null;
  days: number;
}

const DENIED: Choice = { scopes: [], projects: null, days: 1 };

export const describeAuthorization = (query: string) =>
  unwrapResponse(http.POST("/api/v1/oauth/authorizations/describe", { body: { query } }));

export const describeDevice = (code: string) =>
  unwrapResponse(http.POST("/api/v1/oauth/devices/describe", { body: { code } }));

/** Grants a program's request, or denies it without a choice. Returns where the browser has to go. */
export async function decideAuthorization(query: string, choice?: Choice): Promise<string> {
  const body = { query, approve: choice !== undefined, ...(choice ?? DENIED) };
  return (await unwrapResponse(http.POST("/api/v1/oauth/authorizations", { body }))).redirect;
}

/** Grants the request of the device that shows the code, or denies it without a choice. */
export const decideDevice = (code: string, choice?: Choice) =>
  unwrapResponse(
    http.POST("/api/v1/oauth/devices", { body: { code, approve: choice !== undefined, ...(choice ?? DENIED) } }),
  );

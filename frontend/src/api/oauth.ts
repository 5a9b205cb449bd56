import { http, unwrapResponse } from "./client";
import type { components } from "./schema";

export type AccessRequested = components["schemas"]["AccessRequested"];

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

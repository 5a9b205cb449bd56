import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { getLocale } from "@/i18n";
import { fetchCsrfToken, http, unwrapResponse } from "./client";
import { ApiError } from "./errors";
import type { PeopleOrdering } from "./types";

const PAGE = 50;

export const peopleKeys = {
  people: ["people"] as const,
  sessions: ["browser-sessions"] as const,
};

export interface PeopleFilters {
  search: string;
  service: boolean;
  active: boolean | undefined;
  ordering: PeopleOrdering | undefined;
  page: number;
}

export const peopleQuery = ({ active, ordering, ...filters }: PeopleFilters) =>
  queryOptions({
    queryKey: [...peopleKeys.people, filters, active, ordering],
    queryFn: () =>
      unwrapResponse(
        http.GET("/api/v1/people", {
          params: {
            query: {
              ...filters,
              pageSize: PAGE,
              ...(active !== undefined && { active }),
              ...(ordering && { ordering }),
            },
          },
        }),
      ),
    placeholderData: keepPreviousData,
  });

export const createPerson = (body: { username: string; email: string }) =>
  unwrapResponse(http.POST("/api/v1/people", { body }));

export const changePerson = (username: string, body: { isActive?: boolean; isAdministrator?: boolean }) =>
  unwrapResponse(http.PATCH("/api/v1/people/{username}", { params: { path: { username } }, body }));

/** Makes a link that signs a person in once. Only this answer holds it. */
export const createInvitation = (username: string) =>
  unwrapResponse(http.POST("/api/v1/people/{username}/invitation", { params: { path: { username } } }));

export const resetSecondFactors = (username: string) =>
  unwrapResponse(http.DELETE("/api/v1/people/{username}/second-factors", { params: { path: { username } } }));

export const endPersonSessions = (username: string, tokens: boolean) =>
  unwrapResponse(
    http.POST("/api/v1/people/{username}/sessions/end", { params: { path: { username } }, body: { tokens } }),
  );

export const sessionsQuery = queryOptions({
  queryKey: peopleKeys.sessions,
  queryFn: () => unwrapResponse(http.GET("/api/v1/sessions")),
});

export const endSession = (id: string) =>
  unwrapResponse(http.DELETE("/api/v1/sessions/{session_id}", { params: { path: { session_id: id } } }));

export const endSessions = (tokens: boolean) => unwrapResponse(http.POST("/api/v1/sessions/end", { body: { tokens } }));

/** Sets the own password. Throws ApiError with what is wrong with it. */
export async function setPassword(current: string, next: string): Promise<void> {
  const response = await fetch("/_allauth/browser/v1/account/password/change", {
    method: "POST",
    headers: {
      "Accept-Language": getLocale(),
      "Content-Type": "application/json",
      "X-CSRFToken": await fetchCsrfToken(),
    },
    body: JSON.stringify({ ...(current && { current_password: current }), new_password: next }),
  });
  if (response.ok) return;
  const answer = (await response.json().catch(() => ({}))) as { errors?: { message: string; code: string }[] };
  const message = answer.errors?.map((error) => error.message).join(" ");
  throw new ApiError(response.status, { error: answer.errors?.[0]?.code ?? "unknown", message });
}

import { queryOptions } from "@tanstack/react-query";
import { getLocale } from "@/i18n";
import { fetchCsrfToken, http, unwrapResponse } from "./client";
import { ApiError, isSignedOut } from "./errors";
import type { Me } from "./types";

/** `ended`: true once a session has ended while the console was open. */
export const sessionKeys = { me: ["session", "me"] as const, ended: ["session", "ended"] as const };

export const meQuery = queryOptions({
  queryKey: sessionKeys.me,
  queryFn: () => unwrapResponse(http.GET("/api/v1/auth/me")),
  staleTime: 5 * 60_000,
});

export const signInQuery = queryOptions({
  queryKey: ["session", "sign-in"],
  queryFn: () => unwrapResponse(http.GET("/api/v1/auth/sign-in")),
  staleTime: Infinity,
});

/** Returns by what people may sign in, and why a sign-in by a provider was refused. `error`: of the page's address. */
export const signInProvidersQuery = (error: string | null) =>
  queryOptions({
    queryKey: ["session", "sign-in-providers", error],
    queryFn: () =>
      unwrapResponse(http.GET("/api/v1/auth/providers", { params: { query: { ...(error && { error }) } } })),
    staleTime: 60_000,
  });

/** Begins a sign-in by a provider, and returns the address that the browser goes to. */
export async function startSignIn(providerId: string, next: string): Promise<string> {
  const { url } = await unwrapResponse(
    http.POST("/api/v1/auth/providers/{provider_id}/start", {
      params: { path: { provider_id: providerId } },
      body: { next },
    }),
  );
  return url;
}

/** Notices for operators; empty for other users. */
export const noticesQuery = queryOptions({
  queryKey: ["notices"] as const,
  queryFn: () => unwrapResponse(http.GET("/api/v1/notices")),
  staleTime: 5 * 60_000,
  refetchInterval: 5 * 60_000,
});

/** Returns whether a user may change what belongs to a project. Only administrators may change what belongs to none. */
export function isMaintainer(me: Me | undefined, projectId: string | null): boolean {
  if (!me) return false;
  return me.isAdministrator || me.projects.some(({ id, role }) => id === projectId && role === "maintainer");
}

/** Returns whether a user may create things in a project, or in any. */
export function canCreate(me: Me | undefined, projectId?: string | null): boolean {
  if (!me) return false;
  const current = me.projects.filter(({ id }) => projectId === undefined || id === projectId);
  return me.isAdministrator || current.some(({ role }) => role !== "viewer");
}

const AUTH = "/_allauth/browser/v1/auth";

async function auth(method: string, path: string, body?: object): Promise<Response> {
  const headers = {
    "Accept-Language": getLocale(),
    "Content-Type": "application/json",
    "X-CSRFToken": await fetchCsrfToken(),
  };
  return fetch(AUTH + path, { method, headers, ...(body && { body: JSON.stringify(body) }) });
}

interface Refusal {
  errors?: { code: string; message: string }[];
  data?: { flows?: { id: string; is_pending?: boolean }[] };
}

export type Credentials = { name: string; password: string } | { code: string };

/**
 * Signs in. Returns "code" if the account needs a second factor: call it again with the code. Throws ApiError with
 * allauth's code (`username_password_mismatch`, `too_many_login_attempts`, …).
 */
export async function signIn(credentials: Credentials): Promise<"done" | "code"> {
  const response =
    "code" in credentials
      ? await auth("POST", "/2fa/authenticate", credentials)
      : await auth("POST", "/login", {
          [credentials.name.includes("@") ? "email" : "username"]: credentials.name,
          password: credentials.password,
        });
  if (response.ok || response.status === 409) return "done"; // 409: already signed in
  const text = (await response.json().catch(() => ({}))) as Refusal;
  if (needsCode(text)) return "code";
  const first = text.errors?.[0];
  const code = response.status === 429 ? "too_many_login_attempts" : (first?.code ?? "unknown");
  throw new ApiError(response.status, { error: code, message: first?.message });
}

/** Returns whether a sign-in by a provider waits for the account's second factor. */
export const pendingCodeQuery = queryOptions({
  queryKey: ["session", "pending-code"],
  queryFn: async () => {
    const response = await fetch(AUTH + "/session");
    return needsCode((await response.json().catch(() => ({}))) as Refusal);
  },
  retry: false,
});

function needsCode(refusal: Refusal): boolean {
  return refusal.data?.flows?.some(({ id, is_pending }) => id === "mfa_authenticate" && is_pending) ?? false;
}

/** Ends the session. Returns where to go to sign out at the identity provider, too, where it is set so. */
export async function signOut(): Promise<string | null> {
  try {
    return (await unwrapResponse(http.POST("/api/v1/auth/sign-out"))).url;
  } catch (error) {
    if (isSignedOut(error)) return null; // already
    throw error;
  }
}

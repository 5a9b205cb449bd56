import { queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import type { components } from "./schema";

export type SignInPolicy = components["schemas"]["SignInPolicyItem"];
export type SignInPolicyRequest = components["schemas"]["SignInPolicyRequest"];

export const signInPolicyQuery = queryOptions({
  queryKey: ["sign-in-policy"],
  queryFn: () => unwrapResponse(http.GET("/api/v1/sign-in-policy")),
});

export const changeSignInPolicy = (body: SignInPolicyRequest) =>
  unwrapResponse(http.PUT("/api/v1/sign-in-policy", { body }));

/** The text that people read before they sign in; null without one. */
export const bannerQuery = (language: string) =>
  queryOptions({
    queryKey: ["session", "banner", language],
    queryFn: () => unwrapResponse(http.GET("/api/v1/auth/banner")),
    staleTime: 60_000,
  });

export const acceptBanner = (version: number) =>
  unwrapResponse(http.POST("/api/v1/auth/banner/accept", { body: { version } }));

/** Where the audit trail is sent to. */
export const auditStreamQuery = queryOptions({
  queryKey: ["audit-stream"],
  queryFn: () => unwrapResponse(http.GET("/api/v1/audit-stream")),
  refetchInterval: 10_000,
});

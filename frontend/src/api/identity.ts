import { queryOptions, type QueryClient } from "@tanstack/react-query";
import type { components } from "./schema";
import { fetchAllPages, http, unwrapResponse } from "./client";

export type IdentityProvider = components["schemas"]["IdentityProviderItem"];
type CreateBody = components["schemas"]["IdentityProviderCreateRequest"];
export type ProviderKind = CreateBody["kind"];
type ChangeBody = Partial<Omit<CreateBody, "id" | "kind">>;

const key = ["identity-providers"] as const;

export const identityProvidersQuery = queryOptions({
  queryKey: key,
  queryFn: () =>
    fetchAllPages((page) =>
      unwrapResponse(http.GET("/api/v1/identity-providers", { params: { query: { page, pageSize: 100 } } })),
    ),
});

/** Marks the list as old, and what the sign-in page offers, too. */
export const invalidateProviders = (client: QueryClient) =>
  Promise.all([
    client.invalidateQueries({ queryKey: key }),
    client.invalidateQueries({ queryKey: ["session", "sign-in-providers"] }),
  ]);

const at = (id: string) => ({ params: { path: { provider_id: id } } });

export const createProvider = (body: CreateBody) => unwrapResponse(http.POST("/api/v1/identity-providers", { body }));

export const changeProvider = (id: string, body: ChangeBody) =>
  unwrapResponse(http.PATCH("/api/v1/identity-providers/{provider_id}", { ...at(id), body }));

export const deleteProvider = (id: string) =>
  unwrapResponse(http.DELETE("/api/v1/identity-providers/{provider_id}", at(id)));

export const deleteProviderLinks = (id: string) =>
  unwrapResponse(http.DELETE("/api/v1/identity-providers/{provider_id}/links", at(id)));

/** Begins a trial in this browser, and returns the address that a window goes to. */
export const tryProvider = (id: string) =>
  unwrapResponse(http.POST("/api/v1/identity-providers/{provider_id}/trial", at(id)));

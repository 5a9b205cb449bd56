import { keepPreviousData, mutationOptions, type QueryClient, queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import { inventoryKeys } from "./inventory";
import type { Environment, EnvironmentOrdering } from "./types";

export interface EnvironmentFilters {
  zone?: string;
  status?: string;
  gpuType?: string;
  kind?: string;
  search?: string;
  ordering?: EnvironmentOrdering;
  page: number;
}

export const ENVIRONMENTS_PER_PAGE = 50;

/** One page of the list, filtered and sorted by the server. */
export const environmentPageQuery = ({ zone, status, gpuType, kind, ordering, ...rest }: EnvironmentFilters) =>
  queryOptions({
    queryKey: [...inventoryKeys.environments, "page", { zone, status, gpuType, kind, ordering, ...rest }] as const,
    queryFn: () => {
      const query = {
        ...rest,
        pageSize: ENVIRONMENTS_PER_PAGE,
        ...(zone && { zone: [zone] }),
        ...(status && { status: [status as Environment["status"]] }),
        ...(gpuType && { gpuType: [gpuType] }),
        ...(ordering && { ordering }),
        ...(kind && { kind: [kind as Environment["kind"]] }),
      };
      return unwrapResponse(http.GET("/api/v1/dev-environments", { params: { query } }));
    },
    placeholderData: keepPreviousData,
    refetchInterval: 10_000,
  });

export const environmentQuery = (id: string) =>
  queryOptions({
    queryKey: [...inventoryKeys.environments, "one", id] as const,
    queryFn: () =>
      unwrapResponse(
        http.GET("/api/v1/dev-environments/{environment_id}", { params: { path: { environment_id: id } } }),
      ),
    refetchInterval: 5_000,
  });

/** Sets whether new tasks may use an environment. */
export const cordonEnvironment = (id: string, cordoned: boolean) =>
  unwrapResponse(
    http.PATCH("/api/v1/dev-environments/{environment_id}", {
      params: { path: { environment_id: id } },
      body: { cordoned },
    }),
  );

export const cordonMutation = (client: QueryClient, id: string) =>
  mutationOptions({
    mutationFn: (cordoned: boolean) => cordonEnvironment(id, cordoned),
    onSuccess: () => client.invalidateQueries({ queryKey: inventoryKeys.environments }),
  });

/**
 * Sets whether a process with the training stack imported is kept ready in an environment; null: as its project says.
 */
export const warmMutation = (client: QueryClient, id: string) =>
  mutationOptions({
    mutationFn: (warm: boolean | null) =>
      unwrapResponse(
        http.PATCH("/api/v1/dev-environments/{environment_id}", {
          params: { path: { environment_id: id } },
          body: { warm },
        }),
      ),
    onSuccess: () => client.invalidateQueries({ queryKey: inventoryKeys.environments }),
  });

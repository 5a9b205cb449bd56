import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { fetchAllPages, http, unwrapResponse } from "./client";

/** The most that the platform gives at once. */
const PAGE = 200;

export const inventoryKeys = {
  environments: ["environments"] as const,
  datasets: ["datasets"] as const,
  models: ["models"] as const,
  frameworks: ["frameworks"] as const,
};

export const zonesQuery = queryOptions({
  queryKey: ["zones"] as const,
  queryFn: () =>
    fetchAllPages((page) =>
      unwrapResponse(http.GET("/api/v1/availability-zones", { params: { query: { page, pageSize: PAGE } } })),
    ),
  staleTime: 30_000,
});

/**
 * All of them, since they are searched, filtered and sorted on the page. Who may be ticked changes as tasks come and go,
 * so the list is asked for again while it is on the screen: a long one less often, as each time is many requests.
 */
export const environmentsQuery = queryOptions({
  queryKey: inventoryKeys.environments,
  queryFn: ({ signal }) =>
    fetchAllPages((page) =>
      unwrapResponse(http.GET("/api/v1/dev-environments", { params: { query: { page, pageSize: PAGE } }, signal })),
    ),
  refetchInterval: ({ state }) => ((state.data?.length ?? 0) > 2 * PAGE ? 60_000 : 10_000),
  placeholderData: keepPreviousData,
});

/** Looked at again while a version is being prepared. */
export const datasetsQuery = queryOptions({
  queryKey: inventoryKeys.datasets,
  refetchInterval: ({ state }) =>
    state.data?.some(({ versions }) => versions.some(({ status }) => status === "preparing")) ? 2_000 : false,
  queryFn: () =>
    fetchAllPages((page) =>
      unwrapResponse(http.GET("/api/v1/datasets", { params: { query: { page, pageSize: PAGE } } })),
    ),
});

export const modelsQuery = queryOptions({
  queryKey: inventoryKeys.models,
  queryFn: () =>
    fetchAllPages((page) =>
      unwrapResponse(http.GET("/api/v1/models", { params: { query: { page, pageSize: PAGE } } })),
    ),
});

export const frameworksQuery = queryOptions({
  queryKey: inventoryKeys.frameworks,
  queryFn: async () => (await unwrapResponse(http.GET("/api/v1/frameworks"))).items,
  staleTime: Infinity,
});

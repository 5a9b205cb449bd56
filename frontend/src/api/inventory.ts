import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { fetchAllPages, http, unwrapResponse } from "./client";

/** The largest page that the platform allows. */
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
 * All environments, as the page itself searches, filters and sorts them. Tasks change which of them can be chosen, so
 * the list is refreshed while it is shown; a long list less often, since it takes many requests.
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

/** Refreshed while a version is being prepared. */
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

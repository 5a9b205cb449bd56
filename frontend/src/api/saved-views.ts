import { mutationOptions, type QueryClient, queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";

/** The most views that the platform keeps for a user. */
const ALL = 100;

const viewKeys = { of: (section: string) => ["views", section] as const };

export const viewsQuery = (section: string) =>
  queryOptions({
    queryKey: viewKeys.of(section),
    queryFn: async () =>
      (await unwrapResponse(http.GET("/api/v1/saved-views", { params: { query: { section, pageSize: ALL } } }))).items,
    staleTime: 60_000,
  });

/** Saves a view; one of the same name is replaced. */
export const saveListView = (client: QueryClient, section: string) =>
  mutationOptions({
    mutationFn: (view: { name: string; query: string }) =>
      unwrapResponse(http.POST("/api/v1/saved-views", { body: { section, ...view } })),
    onSuccess: () => client.invalidateQueries({ queryKey: viewKeys.of(section) }),
  });

export const deleteListView = (client: QueryClient, section: string) =>
  mutationOptions({
    mutationFn: (id: string) =>
      unwrapResponse(http.DELETE("/api/v1/saved-views/{view_id}", { params: { path: { view_id: id } } })),
    onSuccess: () => client.invalidateQueries({ queryKey: viewKeys.of(section) }),
  });

import { queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";

/** Refreshed on each visit, as tasks change which environments are available. */
export const taskTemplatesQuery = queryOptions({
  queryKey: ["task-templates"] as const,
  queryFn: async ({ signal }) => (await unwrapResponse(http.GET("/api/v1/task-templates", { signal }))).items,
});

/** Measurements between environments in different zones. */
export const crossZoneQuery = (environments: string[]) =>
  queryOptions({
    queryKey: ["between-zones", environments] as const,
    queryFn: async ({ signal }) =>
      (
        await unwrapResponse(
          http.GET("/api/v1/preflights/between-zones", { params: { query: { environments } }, signal }),
        )
      ).items,
    staleTime: 60_000,
  });

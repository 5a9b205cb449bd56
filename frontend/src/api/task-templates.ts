import { queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";

/** Asked for again each time: which environments a use case could take changes as tasks come and go. */
export const taskTemplatesQuery = queryOptions({
  queryKey: ["task-templates"] as const,
  queryFn: async ({ signal }) => (await unwrapResponse(http.GET("/api/v1/task-templates", { signal }))).items,
});

/** What was measured between environments of different zones. */
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

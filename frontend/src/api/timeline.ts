import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";

export interface TimelineFilters {
  from: string;
  to: string;
  project?: string;
}

/** Refreshed less often for a long list. */
export const timelineQuery = (filters: TimelineFilters) =>
  queryOptions({
    queryKey: ["queue", "timeline", filters] as const,
    queryFn: () => unwrapResponse(http.GET("/api/v1/environments/timeline", { params: { query: { ...filters } } })),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => ((state.data?.environments.length ?? 0) > 200 ? 30_000 : 10_000),
  });

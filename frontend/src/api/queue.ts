import { keepPreviousData, type QueryClient, queryOptions } from "@tanstack/react-query";
import { fetchAllPages, http, unwrapResponse } from "./client";
import type { QueuedTask } from "./types";

export interface Queue {
  items: QueuedTask[];
  total: number;
}

export interface QueueFilters {
  project?: string;
  cluster?: string;
  page: number;
}

export const WAITING_PER_PAGE = 100;

export const queueKeys = {
  all: ["queue"] as const,
  list: (filters: QueueFilters) => ["queue", "list", filters] as const,
};

/** Refreshed every few seconds, as often as the platform schedules. */
export const queueQuery = (filters: QueueFilters) =>
  queryOptions({
    queryKey: queueKeys.list(filters),
    queryFn: (): Promise<Queue> =>
      unwrapResponse(http.GET("/api/v1/queue", { params: { query: { ...filters, pageSize: WAITING_PER_PAGE } } })),
    placeholderData: keepPreviousData,
    refetchInterval: 5_000,
  });

/** Moves a task before another one of its project and priority class; null: to the end of them. */
export const moveQueuedTask = (id: string, before: string | null) =>
  unwrapResponse(
    http.POST("/api/v1/training-tasks/{task_id}/move", { params: { path: { task_id: id } }, body: { before } }),
  );

export function invalidateQueue(client: QueryClient): Promise<void> {
  return client.invalidateQueries({ queryKey: queueKeys.all });
}

export const clustersQuery = queryOptions({
  queryKey: ["clusters"] as const,
  queryFn: () =>
    fetchAllPages((page) =>
      unwrapResponse(http.GET("/api/v1/clusters", { params: { query: { page, pageSize: 100 } } })),
    ),
  staleTime: 60_000,
});

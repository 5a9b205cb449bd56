import { keepPreviousData, type QueryClient, queryOptions } from "@tanstack/react-query";
import { everyPage, http, unwrap } from "./client";
import type { Waiter } from "./types";

export interface Queue {
  items: Waiter[];
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

/** The platform decides every few seconds who begins. */
export const queueQuery = (filters: QueueFilters) =>
  queryOptions({
    queryKey: queueKeys.list(filters),
    queryFn: (): Promise<Queue> =>
      unwrap(http.GET("/api/v1/queue", { params: { query: { ...filters, pageSize: WAITING_PER_PAGE } } })),
    placeholderData: keepPreviousData,
    refetchInterval: 5_000,
  });

/** Before another task of its project and class; null: behind them all. */
export const moveTask = (id: string, before: string | null) =>
  unwrap(http.POST("/api/v1/training-tasks/{task_id}/move", { params: { path: { task_id: id } }, body: { before } }));

export function queueChanged(client: QueryClient): Promise<void> {
  return client.invalidateQueries({ queryKey: queueKeys.all });
}

export const clustersQuery = queryOptions({
  queryKey: ["clusters"] as const,
  queryFn: () =>
    everyPage((page) => unwrap(http.GET("/api/v1/clusters", { params: { query: { page, pageSize: 100 } } }))),
  staleTime: 60_000,
});

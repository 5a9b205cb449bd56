import { keepPreviousData, type QueryClient, queryOptions } from "@tanstack/react-query";
import { everyPage, http, unwrap } from "./client";
import { ask } from "./loose";
import type { Notice } from "./types";

export type PriorityClass = "low" | "normal" | "high" | "urgent";

/** A task that must end first. Without an id it is somebody else's, and its name is empty. */
export interface Ahead {
  taskId: string | null;
  name: string;
  until: string | null;
}

/** A task that waits. Without an id it is somebody else's: its name and owner are empty. */
export interface Waiter {
  number: number;
  taskId: string | null;
  taskName: string;
  projectId: string | null;
  owner: string;
  priority: PriorityClass;
  preemptible: boolean;
  mayMove: boolean;
  asks: { nodes: number | null; gpus: number | null; gpuTypes: string[]; text: string };
  since: string;
  reason: Notice | null;
  begins: string | null;
  early: string | null;
  late: string | null;
  after: Ahead[];
}

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
    queryFn: () => ask<Queue>("GET", "/queue", { query: { ...filters, pageSize: WAITING_PER_PAGE } }),
    placeholderData: keepPreviousData,
    refetchInterval: 5_000,
  });

/** Before another task of its project and class; null: behind them all. */
export const moveTask = (id: string, before: string | null) =>
  ask<unknown>("POST", `/training-tasks/${id}/move`, { body: { before } });

export function queueChanged(client: QueryClient): Promise<void> {
  return client.invalidateQueries({ queryKey: queueKeys.all });
}

export const clustersQuery = queryOptions({
  queryKey: ["clusters"] as const,
  queryFn: () =>
    everyPage((page) => unwrap(http.GET("/api/v1/clusters", { params: { query: { page, pageSize: 100 } } }))),
  staleTime: 60_000,
});

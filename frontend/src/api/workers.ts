import { keepPreviousData, type QueryClient, queryOptions } from "@tanstack/react-query";
import { fetchAllPages, http, unwrapResponse } from "./client";
import type { Worker, WorkerGroupChange, WorkerGroupRequest, WorkerOrdering } from "./types";

export interface WorkerFilters {
  search?: string;
  group?: string;
  node?: string;
  status?: string;
  ordering?: WorkerOrdering;
  page: number;
}

export const WORKERS_PER_PAGE = 50;
/** The most that the platform gives at once. */
const PAGE = 200;

export const workerKeys = {
  all: ["workers"] as const,
  list: (filters: WorkerFilters) => [...workerKeys.all, "list", filters] as const,
  one: (id: string) => [...workerKeys.all, "one", id] as const,
  environment: (id: string) => [...workerKeys.all, "environment", id] as const,
  groups: ["workers", "groups"] as const,
  tokens: ["join-tokens"] as const,
};

/** One page of the list, as the server filters and orders it; heartbeats come every few seconds. */
export const workersQuery = ({ status, ...rest }: WorkerFilters) =>
  queryOptions({
    queryKey: workerKeys.list({ ...rest, ...(status && { status }) }),
    queryFn: () => {
      const query = {
        ...rest,
        pageSize: WORKERS_PER_PAGE,
        ...(status && { status: [status as Worker["status"]] }),
      };
      return unwrapResponse(http.GET("/api/v1/workers", { params: { query } }));
    },
    placeholderData: keepPreviousData,
    refetchInterval: 2_000,
  });

export const workerQuery = (id: string) =>
  queryOptions({
    queryKey: workerKeys.one(id),
    queryFn: () => unwrapResponse(http.GET("/api/v1/workers/{worker_id}", { params: { path: { worker_id: id } } })),
    refetchInterval: 2_000,
  });

/** What the worker's process would be given if it started now. */
export const workerEnvironmentQuery = (id: string) =>
  queryOptions({
    queryKey: workerKeys.environment(id),
    queryFn: () =>
      unwrapResponse(http.GET("/api/v1/workers/{worker_id}/environment", { params: { path: { worker_id: id } } })),
    refetchInterval: 2_000,
  });

export const deleteWorker = (id: string) =>
  unwrapResponse(http.DELETE("/api/v1/workers/{worker_id}", { params: { path: { worker_id: id } } }));

export const groupsQuery = queryOptions({
  queryKey: workerKeys.groups,
  queryFn: () =>
    fetchAllPages((page) =>
      unwrapResponse(http.GET("/api/v1/worker-groups", { params: { query: { page, pageSize: PAGE } } })),
    ),
  refetchInterval: 2_000,
});

export const createGroup = (body: WorkerGroupRequest) => unwrapResponse(http.POST("/api/v1/worker-groups", { body }));

export const updateGroup = (id: string, body: WorkerGroupChange) =>
  unwrapResponse(http.PATCH("/api/v1/worker-groups/{group_id}", { params: { path: { group_id: id } }, body }));

export const deleteGroup = (id: string) =>
  unwrapResponse(http.DELETE("/api/v1/worker-groups/{group_id}", { params: { path: { group_id: id } } }));

export const runGroupAction = (id: string, action: "start" | "stop" | "restart") =>
  unwrapResponse(http.POST(`/api/v1/worker-groups/{group_id}/${action}`, { params: { path: { group_id: id } } }));

/** Null takes them out of the group that they are in. */
export const moveWorkers = (workerIds: string[], groupId: string | null) =>
  unwrapResponse(http.POST("/api/v1/worker-groups/move", { body: { workerIds, groupId } }));

/** The list, the groups and the previews all follow from who is where. */
export function invalidateWorkers(client: QueryClient): Promise<void> {
  return client.invalidateQueries({ queryKey: workerKeys.all });
}

export const joinTokensQuery = queryOptions({
  queryKey: workerKeys.tokens,
  queryFn: () =>
    fetchAllPages((page) =>
      unwrapResponse(http.GET("/api/v1/workers/join-tokens", { params: { query: { page, pageSize: PAGE } } })),
    ),
});

/** The answer holds the token itself and the command that uses it, this once. */
export const createJoinToken = (body: { name: string; projectId?: string }) =>
  unwrapResponse(http.POST("/api/v1/workers/join-tokens", { body }));

export const revokeJoinToken = (id: string) =>
  unwrapResponse(http.DELETE("/api/v1/workers/join-tokens/{token_id}", { params: { path: { token_id: id } } }));

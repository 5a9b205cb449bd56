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
/** The largest page that the platform allows. */
const PAGE = 200;

export const workerKeys = {
  all: ["workers"] as const,
  list: (filters: WorkerFilters) => [...workerKeys.all, "list", filters] as const,
  one: (id: string) => [...workerKeys.all, "one", id] as const,
  environment: (id: string) => [...workerKeys.all, "environment", id] as const,
  groups: ["workers", "groups"] as const,
  tokens: ["join-tokens"] as const,
};

/** One page of the list, filtered and sorted by the server. Heartbeats arrive every few seconds. */
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

/** The variables that the worker's process would get if it started now. */
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

/** Moves workers to a group; null removes them from their group. */
export const moveWorkers = (workerIds: string[], groupId: string | null) =>
  unwrapResponse(http.POST("/api/v1/worker-groups/move", { body: { workerIds, groupId } }));

/** Refreshes the list, the groups and the previews of variables. */
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

/** Creates a join token. Only this answer holds the token and the command that uses it. */
export const createJoinToken = (body: { name: string; projectId?: string }) =>
  unwrapResponse(http.POST("/api/v1/workers/join-tokens", { body }));

export const revokeJoinToken = (id: string) =>
  unwrapResponse(http.DELETE("/api/v1/workers/join-tokens/{token_id}", { params: { path: { token_id: id } } }));

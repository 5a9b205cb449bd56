import { queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import type { components } from "./schema";

export type TaskCode = components["schemas"]["TaskCode"];
export type Snapshot = components["schemas"]["SnapshotItem"];
export type CodeOrigin = components["schemas"]["CodeOrigin"];

const snapshot = (id: string) => ({ path: { snapshot_id: id } });

export const taskCodeQuery = (id: string) =>
  queryOptions({
    queryKey: ["code", "task", id] as const,
    queryFn: () =>
      unwrapResponse(http.GET("/api/v1/training-tasks/{task_id}/code", { params: { path: { task_id: id } } })),
    refetchInterval: ({ state }) => (state.data?.fetch?.status === "fetching" ? 2_000 : false),
  });

export type CodeSource = components["schemas"]["TaskCodeSource"];
export type CodeChoice = components["schemas"]["CodeChoice"];

const SOURCE_MS = 5_000;

/**
 * Where the code was taken from, and whether it has changed there since. The platform asks the environment or the Git
 * server.
 */
export const codeSourceQuery = (id: string) =>
  queryOptions({
    queryKey: ["code", "source", id] as const,
    queryFn: () => {
      const signal = AbortSignal.timeout(SOURCE_MS);
      const params = { path: { task_id: id } };
      return unwrapResponse(http.GET("/api/v1/training-tasks/{task_id}/code/source", { params, signal }));
    },
    retry: false,
    staleTime: 0,
    gcTime: 0,
  });

/** Files of a snapshot; they never change. */
export const treeQuery = (id: string, path: string) =>
  queryOptions({
    queryKey: ["code", "tree", id, path] as const,
    queryFn: () =>
      unwrapResponse(
        http.GET("/api/v1/code/snapshots/{snapshot_id}/tree", { params: { ...snapshot(id), query: { path } } }),
      ),
    staleTime: Infinity,
  });

export const fileQuery = (id: string, path: string) =>
  queryOptions({
    queryKey: ["code", "file", id, path] as const,
    queryFn: () =>
      unwrapResponse(
        http.GET("/api/v1/code/snapshots/{snapshot_id}/file", { params: { ...snapshot(id), query: { path } } }),
      ),
    staleTime: Infinity,
  });

export const diffQuery = (before: string, after: string) =>
  queryOptions({
    queryKey: ["code", "diff", before, after] as const,
    queryFn: () =>
      unwrapResponse(
        http.GET("/api/v1/code/snapshots/{snapshot_id}/diff", { params: { ...snapshot(after), query: { before } } }),
      ),
    staleTime: Infinity,
  });

export const snapshotsQuery = (project: string) =>
  queryOptions({
    queryKey: ["code", "list", project] as const,
    queryFn: () => unwrapResponse(http.GET("/api/v1/code/snapshots", { params: { query: { project, pageSize: 20 } } })),
  });

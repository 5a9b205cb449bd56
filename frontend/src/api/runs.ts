import {
  infiniteQueryOptions,
  keepPreviousData,
  mutationOptions,
  type QueryClient,
  queryOptions,
} from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import { isFinished, taskKeys } from "./tasks";
import type { RunBulkRequest, RunChange, RunSearch, RunViewChange, RunViewRequest } from "./types";

const RUNS_PER_PAGE = 100;
/** The most views that the platform lists at a time. */
const ALL_VIEWS = 100;
/** Lists of more pages than this are not refreshed by themselves: each page is a request. */
const MAX_REFRESHED_PAGES = 2;

export const runKeys = {
  all: ["runs"] as const,
  list: (search: RunSearch) => [...runKeys.all, "list", search] as const,
  chosen: (ids: string[], columns: string[]) => [...runKeys.all, "chosen", ids, columns] as const,
  groups: (search: RunSearch, by: string[]) => [...runKeys.all, "groups", search, by] as const,
  note: (id: string) => [...runKeys.all, "note", id] as const,
  columns: (search: string) => ["run-columns", search] as const,
  completion: (query: string, position: number) => ["run-completion", query, position] as const,
  views: ["run-views"] as const,
};

/** Pages of runs, one after another by the cursor. */
export const runsQuery = (search: RunSearch) =>
  infiniteQueryOptions({
    queryKey: runKeys.list(search),
    queryFn: ({ pageParam, signal }) =>
      unwrapResponse(
        http.GET("/api/v1/runs", {
          params: { query: { ...search, pageSize: RUNS_PER_PAGE, ...(pageParam && { cursor: pageParam }) } },
          signal,
        }),
      ),
    initialPageParam: "",
    getNextPageParam: ({ nextCursor }) => nextCursor || undefined,
    placeholderData: keepPreviousData,
    refetchInterval: ({ state: { data } }) => {
      if (!data || data.pages.length > MAX_REFRESHED_PAGES) return false;
      return data.pages.every(({ items }) => items.every(({ task }) => isFinished(task))) ? 60_000 : 10_000;
    },
  });

/** A few runs by their ids, archived ones too; those that the user may not see are missing. */
export const chosenRunsQuery = (ids: string[], columns: string[]) =>
  queryOptions({
    queryKey: runKeys.chosen(ids, columns),
    queryFn: async () => {
      const query = {
        query: `id:${ids.join(",")}`,
        column: columns,
        archived: "all" as const,
        pageSize: RUNS_PER_PAGE,
      };
      return (await unwrapResponse(http.GET("/api/v1/runs", { params: { query } }))).items;
    },
    enabled: ids.length > 0,
    placeholderData: keepPreviousData,
    refetchInterval: ({ state: { data } }) => (data?.every(({ task }) => isFinished(task)) === false ? 10_000 : false),
  });

/** The first runs of a group. */
export const groupRunsQuery = (search: RunSearch) =>
  queryOptions({
    queryKey: [...runKeys.list(search), "group"] as const,
    queryFn: () =>
      unwrapResponse(http.GET("/api/v1/runs", { params: { query: { ...search, pageSize: RUNS_PER_PAGE } } })),
  });

export const runGroupsQuery = (search: RunSearch, by: string[]) =>
  queryOptions({
    queryKey: runKeys.groups(search, by),
    queryFn: ({ signal }) =>
      unwrapResponse(http.GET("/api/v1/runs/groups", { params: { query: { ...search, by } }, signal })),
    enabled: by.length > 0,
    placeholderData: keepPreviousData,
    refetchInterval: 60_000,
  });

/** Columns that the runs of the user have; of parameters and metrics those that contain `search`. */
export const runColumnsQuery = (search: string) =>
  queryOptions({
    queryKey: runKeys.columns(search),
    queryFn: async ({ signal }) =>
      (await unwrapResponse(http.GET("/api/v1/runs/columns", { params: { query: search ? { search } : {} }, signal })))
        .items,
    placeholderData: keepPreviousData,
    staleTime: 60_000,
  });

/** What can be written at a position of a query, which counts characters. */
export const completionQuery = (query: string, position: number) =>
  queryOptions({
    queryKey: runKeys.completion(query, position),
    queryFn: ({ signal }) =>
      unwrapResponse(http.GET("/api/v1/runs/complete", { params: { query: { query, position } }, signal })),
    staleTime: 60_000,
    retry: false,
  });

/** The whole note of a run: lists have its beginning only. */
export const noteQuery = (id: string) =>
  queryOptions({
    queryKey: runKeys.note(id),
    queryFn: async () =>
      (await unwrapResponse(http.GET("/api/v1/training-tasks/{task_id}", { params: { path: { task_id: id } } }))).note,
  });

export const changeRun = (client: QueryClient) =>
  mutationOptions({
    mutationFn: ({ id, ...body }: { id: string } & RunChange) =>
      unwrapResponse(http.PATCH("/api/v1/runs/{task_id}", { params: { path: { task_id: id } }, body })),
    onSuccess: () => invalidateRuns(client),
  });

/** Does one thing with many runs; each has a result of its own. */
export const changeRuns = (client: QueryClient) =>
  mutationOptions({
    mutationFn: async (body: RunBulkRequest) => (await unwrapResponse(http.POST("/api/v1/runs/bulk", { body }))).items,
    onSettled: () => invalidateRuns(client),
  });

/** Refreshes all that lists runs, and the tasks behind them. */
export async function invalidateRuns(client: QueryClient): Promise<void> {
  await Promise.all([
    client.invalidateQueries({ queryKey: runKeys.all }),
    client.invalidateQueries({ queryKey: taskKeys.all }),
  ]);
}

/** Returns the address of the runs as a file. */
export function buildExportUrl(search: RunSearch, format: "csv" | "parquet"): string {
  const params = new URLSearchParams({ format });
  if (search.query) params.set("query", search.query);
  for (const column of search.column ?? []) params.append("column", column);
  if (search.sort) params.set("sort", search.sort);
  if (search.archived) params.set("archived", search.archived);
  return `/api/v1/runs/export?${params.toString()}`;
}

export const runViewsQuery = queryOptions({
  queryKey: runKeys.views,
  queryFn: async () =>
    (await unwrapResponse(http.GET("/api/v1/run-views", { params: { query: { pageSize: ALL_VIEWS } } }))).items,
  staleTime: 60_000,
});

const refreshViews = (client: QueryClient) => client.invalidateQueries({ queryKey: runKeys.views });

export const createRunView = (client: QueryClient) =>
  mutationOptions({
    mutationFn: (body: RunViewRequest) => unwrapResponse(http.POST("/api/v1/run-views", { body })),
    onSuccess: () => refreshViews(client),
  });

export const changeRunView = (client: QueryClient) =>
  mutationOptions({
    mutationFn: ({ id, ...body }: { id: string } & RunViewChange) =>
      unwrapResponse(http.PATCH("/api/v1/run-views/{view_id}", { params: { path: { view_id: id } }, body })),
    onSuccess: () => refreshViews(client),
  });

export const deleteRunView = (client: QueryClient) =>
  mutationOptions({
    mutationFn: (id: string) =>
      unwrapResponse(http.DELETE("/api/v1/run-views/{view_id}", { params: { path: { view_id: id } } })),
    onSuccess: () => refreshViews(client),
  });

import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { fetchAllPages, http, unwrapResponse } from "./client";
import type { components } from "./schema";

export type RunComparison = components["schemas"]["RunComparison"];
export type ComparedRun = components["schemas"]["ComparedRun"];
export type ComparedMedia = components["schemas"]["ComparedMedia"];
export type RunSeries = components["schemas"]["RunSeries"];
export type RunCurve = components["schemas"]["RunCurve"];
export type RunBand = components["schemas"]["RunBand"];
export type Axis = RunSeries["axis"];

export const MAX_RUNS = 50;
export const MAX_METRICS = 20;
/** While the platform still reads points. */
const READING_MS = 1000;
const POLL_MS = 15_000;

/** What the runs have in common. `live`: some of them still run. */
export const comparisonQuery = (tasks: string[], live: boolean) =>
  queryOptions({
    queryKey: ["compare", "runs", tasks] as const,
    queryFn: () => unwrapResponse(http.GET("/api/v1/runs/comparison", { params: { query: { task: tasks } } })),
    refetchInterval: ({ state }) => chooseInterval(state.data?.complete, live),
    enabled: tasks.length > 0,
  });

export interface SeriesRequest {
  metric: string[];
  axis: Axis;
  points: number;
  from?: number | undefined;
  to?: number | undefined;
  groupBy?: string | undefined;
}

export const runSeriesQuery = (tasks: string[], wanted: SeriesRequest, live: boolean) =>
  queryOptions({
    queryKey: ["compare", "series", tasks, wanted] as const,
    queryFn: () => unwrapResponse(http.GET("/api/v1/runs/series", { params: { query: { task: tasks, ...wanted } } })),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => chooseInterval(state.data?.complete, live && wanted.to === undefined),
    enabled: tasks.length > 0 && wanted.metric.length > 0,
  });

/** The files of one kind and name that a run logged, oldest step first. */
export const runMediaQuery = (task: string, kind: ComparedMedia["kind"], name: string) =>
  queryOptions({
    queryKey: ["compare", "media", task, kind, name] as const,
    queryFn: () =>
      fetchAllPages((page) =>
        unwrapResponse(
          http.GET("/api/v1/training-tasks/{task_id}/media", {
            params: { path: { task_id: task }, query: { page, pageSize: 200, ordering: "step", kind, name } },
          }),
        ),
      ),
  });

function chooseInterval(complete: boolean | undefined, live: boolean): number | false {
  if (complete === false) return READING_MS;
  return live ? POLL_MS : false;
}

import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import type { ScheduleChange, ScheduleRequest, ScheduleRun } from "./types";

export const SCHEDULES_PER_PAGE = 20;
export const RUNS_PER_PAGE = 20;

export interface ScheduleFilters {
  search?: string;
  project?: string;
  template?: string;
  ordering?: "name" | "-name" | "nextAt" | "-nextAt";
  page: number;
}

export type RunOutcome = ScheduleRun["outcome"];

export const scheduleKeys = {
  all: ["schedules"] as const,
  list: (filters: ScheduleFilters) => [...scheduleKeys.all, "list", filters] as const,
  moments: (cron: string, zone: string) => [...scheduleKeys.all, "moments", cron, zone] as const,
  one: (id: string) => [...scheduleKeys.all, id] as const,
  runs: (id: string) => [...scheduleKeys.one(id), "runs"] as const,
};

export const schedulesQuery = (filters: ScheduleFilters) =>
  queryOptions({
    queryKey: scheduleKeys.list(filters),
    queryFn: () =>
      unwrapResponse(
        http.GET("/api/v1/schedules", { params: { query: { ...filters, pageSize: SCHEDULES_PER_PAGE } } }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: 30_000,
  });

const at = (id: string) => ({ params: { path: { schedule_id: id } } });

export const scheduleQuery = (id: string) =>
  queryOptions({
    queryKey: scheduleKeys.one(id),
    queryFn: () => unwrapResponse(http.GET("/api/v1/schedules/{schedule_id}", at(id))),
    refetchInterval: 10_000,
  });

/** The newest moments; often refreshed while one of them waits for its task. */
export const scheduleRunsQuery = (id: string, page: number, outcome?: RunOutcome) =>
  queryOptions({
    queryKey: [...scheduleKeys.runs(id), page, outcome] as const,
    queryFn: () =>
      unwrapResponse(
        http.GET("/api/v1/schedules/{schedule_id}/runs", {
          params: {
            path: { schedule_id: id },
            query: { page, pageSize: RUNS_PER_PAGE, ...(outcome && { outcome: [outcome] }) },
          },
        }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => (state.data?.items.some((run) => run.outcome === "pending") ? 2_000 : 10_000),
  });

/** The next moments of an expression. They are asked for again when the first of them has passed. */
export const momentsQuery = (cron: string, zone: string) =>
  queryOptions({
    queryKey: scheduleKeys.moments(cron, zone),
    queryFn: async ({ signal }) =>
      (await unwrapResponse(http.GET("/api/v1/schedules/moments", { params: { query: { cron, zone } }, signal })))
        .moments,
    enabled: cron !== "" && zone !== "",
    retry: false,
    refetchInterval: ({ state }) => {
      const next = state.data?.[0];
      return next ? Math.min(Math.max(new Date(next).getTime() - Date.now(), 1_000), 3_600_000) : false;
    },
  });

export const createSchedule = (body: ScheduleRequest) => unwrapResponse(http.POST("/api/v1/schedules", { body }));

export const changeSchedule = (id: string, body: ScheduleChange) =>
  unwrapResponse(http.PATCH("/api/v1/schedules/{schedule_id}", { ...at(id), body }));

export const deleteSchedule = (id: string) => unwrapResponse(http.DELETE("/api/v1/schedules/{schedule_id}", at(id)));

export const runSchedule = (id: string) => unwrapResponse(http.POST("/api/v1/schedules/{schedule_id}/runs", at(id)));

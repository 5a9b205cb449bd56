import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import type { Task, TelemetrySeries } from "./types";

export type MetricName = TelemetrySeries["metric"];

/** A time range in unix milliseconds; without one, all there is. */
export interface TimeRange {
  from: number;
  to: number;
}

export interface TelemetryRequest {
  metric: MetricName[];
  stretch?: TimeRange;
  points: number;
  /** Nodes of a task; empty: all. */
  node?: number[];
  rank?: number[];
}

/** Samples arrive this often. */
const POLL_MS = 15_000;

const buildQuery = ({ stretch, ...wanted }: TelemetryRequest) => ({
  ...wanted,
  ...(stretch && { from: new Date(stretch.from).toISOString(), to: new Date(stretch.to).toISOString() }),
});

export const taskTelemetryQuery = (task_id: string, wanted: TelemetryRequest, live: boolean) =>
  queryOptions({
    queryKey: ["telemetry", "task", task_id, wanted] as const,
    queryFn: () =>
      unwrapResponse(
        http.GET("/api/v1/training-tasks/{task_id}/telemetry", {
          params: { path: { task_id }, query: buildQuery(wanted) },
        }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: live && !wanted.stretch ? POLL_MS : false,
  });

/** The newest values of each rank, refreshed while the task runs and the page is visible. */
export const rankUsageQuery = ({ taskId: task_id, status }: Pick<Task, "taskId" | "status">) =>
  queryOptions({
    queryKey: ["telemetry", "now", task_id] as const,
    queryFn: () =>
      unwrapResponse(http.GET("/api/v1/training-tasks/{task_id}/telemetry/now", { params: { path: { task_id } } })),
    enabled: status === "running",
    refetchInterval: 5_000,
  });

/** Telemetry of an environment or a worker: the last `seconds`, or the chosen time range. */
export const machineTelemetryQuery = (
  kind: "environment" | "worker",
  id: string,
  wanted: TelemetryRequest,
  seconds: number,
) =>
  queryOptions({
    queryKey: ["telemetry", kind, id, wanted, seconds] as const,
    queryFn: () => {
      const now = Date.now();
      const query = buildQuery({ ...wanted, stretch: wanted.stretch ?? { from: now - seconds * 1000, to: now } });
      return kind === "environment"
        ? unwrapResponse(
            http.GET("/api/v1/dev-environments/{environment_id}/telemetry", {
              params: { path: { environment_id: id }, query },
            }),
          )
        : unwrapResponse(
            http.GET("/api/v1/workers/{worker_id}/telemetry", { params: { path: { worker_id: id }, query } }),
          );
    },
    placeholderData: keepPreviousData,
    refetchInterval: wanted.stretch ? false : POLL_MS,
  });

import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { http, unwrap } from "./client";
import type { Task, TelemetrySeries } from "./types";

export type MetricName = TelemetrySeries["metric"];

/** A stretch of time, in unix milliseconds; without one, all there is. */
export interface Stretch {
  from: number;
  to: number;
}

/** As often as something new can have come. */
const EVERY = 15_000;

const asked = (metric: MetricName[], stretch: Stretch | undefined, points: number) => ({
  metric,
  points,
  ...(stretch && { from: new Date(stretch.from).toISOString(), to: new Date(stretch.to).toISOString() }),
});

export const taskTelemetryQuery = (
  task_id: string,
  metric: MetricName[],
  stretch: Stretch | undefined,
  points: number,
  live: boolean,
) =>
  queryOptions({
    queryKey: ["telemetry", "task", task_id, metric, stretch, points] as const,
    queryFn: () =>
      unwrap(
        http.GET("/api/v1/training-tasks/{task_id}/telemetry", {
          params: { path: { task_id }, query: asked(metric, stretch, points) },
        }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: live && !stretch ? EVERY : false,
  });

/** The newest values of each rank: asked while the task runs and the page can be seen. */
export const ranksUseQuery = ({ taskId: task_id, status }: Pick<Task, "taskId" | "status">) =>
  queryOptions({
    queryKey: ["telemetry", "now", task_id] as const,
    queryFn: () =>
      unwrap(http.GET("/api/v1/training-tasks/{task_id}/telemetry/now", { params: { path: { task_id } } })),
    enabled: status === "running",
    refetchInterval: 5_000,
  });

/** `seconds` back from now, unless a stretch was chosen. */
export const environmentTelemetryQuery = (
  environment_id: string,
  metric: MetricName[],
  seconds: number,
  stretch: Stretch | undefined,
  points: number,
) =>
  queryOptions({
    queryKey: ["telemetry", "environment", environment_id, metric, seconds, stretch, points] as const,
    queryFn: () => {
      const now = Date.now();
      const query = asked(metric, stretch ?? { from: now - seconds * 1000, to: now }, points);
      return unwrap(
        http.GET("/api/v1/dev-environments/{environment_id}/telemetry", {
          params: { path: { environment_id }, query },
        }),
      );
    },
    placeholderData: keepPreviousData,
    refetchInterval: stretch ? false : EVERY,
  });

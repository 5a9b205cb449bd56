import { queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import { taskKeys } from "./tasks";

/** Why a task is waiting and when it is expected to start, refreshed as often as the platform schedules. */
export const taskQueueQuery = (id: string) =>
  queryOptions({
    queryKey: [...taskKeys.one(id), "queue"] as const,
    queryFn: () =>
      unwrapResponse(http.GET("/api/v1/training-tasks/{task_id}/queue", { params: { path: { task_id: id } } })),
    refetchInterval: 5_000,
  });

/** How a task's time was spent, and its cost. */
export const taskUsageQuery = (id: string, goesOn: boolean) =>
  queryOptions({
    queryKey: [...taskKeys.one(id), "usage"] as const,
    queryFn: () =>
      unwrapResponse(http.GET("/api/v1/training-tasks/{task_id}/usage", { params: { path: { task_id: id } } })),
    ...(goesOn && { refetchInterval: 15_000 }),
  });

import { queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import { taskKeys } from "./tasks";

/** Why a task that waits has not begun, and when it will. The platform decides every few seconds. */
export const taskQueueQuery = (id: string) =>
  queryOptions({
    queryKey: [...taskKeys.one(id), "queue"] as const,
    queryFn: () =>
      unwrapResponse(http.GET("/api/v1/training-tasks/{task_id}/queue", { params: { path: { task_id: id } } })),
    refetchInterval: 5_000,
  });

/** What its time went into, and what that cost. */
export const taskUsageQuery = (id: string, goesOn: boolean) =>
  queryOptions({
    queryKey: [...taskKeys.one(id), "usage"] as const,
    queryFn: () =>
      unwrapResponse(http.GET("/api/v1/training-tasks/{task_id}/usage", { params: { path: { task_id: id } } })),
    ...(goesOn && { refetchInterval: 15_000 }),
  });

import { mutationOptions, queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import type { components } from "./schema";
import { taskKeys } from "./tasks";

export type TrackerRun = components["schemas"]["TrackerRunItem"];

const POLL_MS = 15_000;

/** The runs that the task's script began at experiment trackers. */
export const trackerRunsQuery = (id: string, live: boolean) =>
  queryOptions({
    queryKey: [...taskKeys.one(id), "tracker-runs"] as const,
    queryFn: () =>
      unwrapResponse(http.GET("/api/v1/training-tasks/{task_id}/tracker-runs", { params: { path: { task_id: id } } })),
    refetchInterval: ({ state }) =>
      live || state.data?.items.some((run) => run.state === "syncing") ? POLL_MS : false,
  });

export const syncTrackerRunsMutation = (id: string) =>
  mutationOptions({
    mutationFn: () =>
      unwrapResponse(
        http.POST("/api/v1/training-tasks/{task_id}/tracker-runs/sync", {
          params: { path: { task_id: id } },
          body: {},
        }),
      ),
  });

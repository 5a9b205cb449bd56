import { queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import type { components } from "./schema";
import { taskKeys } from "./tasks";

export type LogPattern = components["schemas"]["LogPattern"];

const POLL_MS = 10_000;

export const logPatternsKey = (id: string) => [...taskKeys.one(id), "log-patterns"] as const;

/** The shapes of printed lines in which the platform found curves. */
export const logPatternsQuery = (id: string, live: boolean) =>
  queryOptions({
    queryKey: logPatternsKey(id),
    queryFn: async () =>
      (
        await unwrapResponse(
          http.GET("/api/v1/training-tasks/{task_id}/log-patterns", { params: { path: { task_id: id } } }),
        )
      ).items,
    refetchInterval: live ? POLL_MS : false,
  });

/** Switches a pattern on or off, or gives its fields other names; an empty name leaves a field out. */
export const changeLogPattern = (
  id: string,
  key: string,
  body: { enabled?: boolean; fields?: Record<string, string> },
) =>
  unwrapResponse(
    http.PATCH("/api/v1/training-tasks/{task_id}/log-patterns/{key}", {
      params: { path: { task_id: id, key } },
      body,
    }),
  );

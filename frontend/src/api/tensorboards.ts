import { queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import type { components } from "./schema";

export type TensorBoard = components["schemas"]["TensorBoardItem"];

export const MAX_TENSORBOARD_TASKS = 20;
const POLL_MS = 1000;

/** Returns the address of the page that opens TensorBoard for these tasks. */
export const buildTensorboardAddress = (tasks: string[]) =>
  `/tensorboard?${new URLSearchParams({ tasks: tasks.join(",") }).toString()}`;

/** Opens the TensorBoard of some tasks, once. The same tasks always have the same one. */
export const openTensorboardQuery = (tasks: string[]) =>
  queryOptions({
    queryKey: ["tensorboard", tasks] as const,
    queryFn: () => unwrapResponse(http.POST("/api/v1/tensorboards", { body: { taskIds: tasks } })),
    enabled: tasks.length > 0,
    staleTime: Infinity,
    gcTime: 0,
    retry: false,
  });

/** Follows a TensorBoard while it starts. */
export const tensorboardQuery = (id: string | undefined) =>
  queryOptions({
    queryKey: ["tensorboard", "one", id] as const,
    queryFn: () =>
      unwrapResponse(
        http.GET("/api/v1/tensorboards/{tensorboard_id}", { params: { path: { tensorboard_id: id ?? "" } } }),
      ),
    enabled: id !== undefined,
    refetchInterval: ({ state }) => (state.data && state.data.state !== "starting" ? false : POLL_MS),
    gcTime: 0,
  });

import { queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import { isRunning } from "./preflights";

export const drillKeys = {
  all: ["drills"] as const,
  one: (id: string) => [...drillKeys.all, id] as const,
};

export const drillQuery = (id: string) =>
  queryOptions({
    queryKey: drillKeys.one(id),
    queryFn: () => unwrapResponse(http.GET("/api/v1/drills/{drill_id}", { params: { path: { drill_id: id } } })),
    refetchInterval: ({ state }) => (state.data && !isRunning(state.data) ? false : 1_000),
  });

export const createDrill = (taskId: string) => unwrapResponse(http.POST("/api/v1/drills", { body: { taskId } }));

export const stopDrill = (id: string) =>
  unwrapResponse(http.POST("/api/v1/drills/{drill_id}/stop", { params: { path: { drill_id: id } } }));

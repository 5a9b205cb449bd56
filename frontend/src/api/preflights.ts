import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import type { Preflight, PreflightRequest } from "./types";

export const PREFLIGHTS_PER_PAGE = 20;

export const preflightKeys = {
  all: ["preflights"] as const,
  list: (page: number) => [...preflightKeys.all, "list", page] as const,
  one: (id: string) => [...preflightKeys.all, id] as const,
};

export function isRunning({ status }: Pick<Preflight, "status">): boolean {
  return status === "queued" || status === "running";
}

export const preflightsQuery = (page: number) =>
  queryOptions({
    queryKey: preflightKeys.list(page),
    queryFn: () =>
      unwrapResponse(http.GET("/api/v1/preflights", { params: { query: { page, pageSize: PREFLIGHTS_PER_PAGE } } })),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => (state.data?.items.some(isRunning) ? 2_000 : 15_000),
  });

export const preflightQuery = (id: string) =>
  queryOptions({
    queryKey: preflightKeys.one(id),
    queryFn: () =>
      unwrapResponse(http.GET("/api/v1/preflights/{preflight_id}", { params: { path: { preflight_id: id } } })),
    refetchInterval: ({ state }) => (state.data && !isRunning(state.data) ? false : 1_000),
  });

export const createPreflight = (body: PreflightRequest) => unwrapResponse(http.POST("/api/v1/preflights", { body }));

export const stopPreflight = (id: string) =>
  unwrapResponse(http.POST("/api/v1/preflights/{preflight_id}/stop", { params: { path: { preflight_id: id } } }));

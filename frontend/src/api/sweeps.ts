import { keepPreviousData, mutationOptions, queryOptions } from "@tanstack/react-query";
import { fetchAllPages, http, unwrapResponse } from "./client";
import type { SweepBody, SweepItem } from "./types";

export const SWEEPS_PER_PAGE = 20;
/** Trials in one answer. */
const TRIALS_PER_PAGE = 200;

export const sweepKeys = {
  all: ["sweeps"] as const,
  list: (page: number) => [...sweepKeys.all, "list", page] as const,
  one: (id: string) => [...sweepKeys.all, id] as const,
  trials: (id: string) => [...sweepKeys.one(id), "trials"] as const,
  importance: (id: string) => [...sweepKeys.one(id), "importance"] as const,
  preview: (body: SweepBody) => ["sweep-preview", body] as const,
};

export function hasEnded({ status }: Pick<SweepItem, "status">): boolean {
  return status === "ended";
}

export const sweepsQuery = (page: number) =>
  queryOptions({
    queryKey: sweepKeys.list(page),
    queryFn: () =>
      unwrapResponse(http.GET("/api/v1/sweeps", { params: { query: { page, pageSize: SWEEPS_PER_PAGE } } })),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => (state.data?.items.every(hasEnded) ? 30_000 : 5_000),
  });

export const sweepQuery = (id: string) =>
  queryOptions({
    queryKey: sweepKeys.one(id),
    queryFn: () => unwrapResponse(http.GET("/api/v1/sweeps/{sweep_id}", { params: { path: { sweep_id: id } } })),
    refetchInterval: ({ state }) => (state.data && hasEnded(state.data) ? false : 3_000),
  });

export const trialsQuery = (id: string, ended: boolean) =>
  queryOptions({
    queryKey: sweepKeys.trials(id),
    queryFn: () =>
      fetchAllPages((page) =>
        unwrapResponse(
          http.GET("/api/v1/sweeps/{sweep_id}/trials", {
            params: { path: { sweep_id: id }, query: { page, pageSize: TRIALS_PER_PAGE } },
          }),
        ),
      ),
    refetchInterval: ended ? false : 5_000,
  });

/** `complete`: the number of completed trials, from which it is computed. */
export const importanceQuery = (id: string, complete: number) =>
  queryOptions({
    queryKey: [...sweepKeys.importance(id), complete],
    queryFn: () =>
      unwrapResponse(http.GET("/api/v1/sweeps/{sweep_id}/importance", { params: { path: { sweep_id: id } } })),
    placeholderData: keepPreviousData,
    enabled: complete > 1,
  });

const at = (id: string) => ({ params: { path: { sweep_id: id } } });

export const pauseSweep = (id: string) => unwrapResponse(http.POST("/api/v1/sweeps/{sweep_id}/pause", at(id)));
export const resumeSweep = (id: string) => unwrapResponse(http.POST("/api/v1/sweeps/{sweep_id}/resume", at(id)));
export const stopSweep = (id: string) => unwrapResponse(http.POST("/api/v1/sweeps/{sweep_id}/stop", at(id)));
export const deleteSweep = (id: string) => unwrapResponse(http.DELETE("/api/v1/sweeps/{sweep_id}", at(id)));

interface CloneOfBest {
  taskName?: string;
  hyperparameters?: Record<string, unknown>;
  args?: string[];
  resume: boolean;
}

export const cloneBest = (id: string, body: CloneOfBest) =>
  unwrapResponse(http.POST("/api/v1/sweeps/{sweep_id}/clone-best", { ...at(id), body }));

/** Stores nothing, so the body is the key of the query. Aborted when another body is previewed. */
export const sweepPreviewQuery = (body: SweepBody) =>
  queryOptions({
    queryKey: sweepKeys.preview(body),
    queryFn: ({ signal }) => unwrapResponse(http.POST("/api/v1/sweeps/preview", { body, signal })),
    placeholderData: keepPreviousData,
    gcTime: 60_000,
  });

export const createSweepMutation = mutationOptions({
  mutationFn: (body: SweepBody) => unwrapResponse(http.POST("/api/v1/sweeps", { body })),
});

/** Returns the sweep that a pasted file describes. Stores nothing. */
export const readSweepFile = mutationOptions({
  mutationFn: (text: string) => unwrapResponse(http.POST("/api/v1/sweeps/read-file", { body: { text } })),
});

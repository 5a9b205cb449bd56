import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import type { AttentionKind } from "./types";

export interface OverviewFilters {
  project?: string;
  zone?: string;
  gpuType?: string;
}

/** Refreshed while the page is visible. */
const POLL_MS = 15_000;

export const overviewQuery = (filters: OverviewFilters) =>
  queryOptions({
    queryKey: ["overview", filters] as const,
    queryFn: () => unwrapResponse(http.GET("/api/v1/overview", { params: { query: filters } })),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });

export const ATTENTION_PER_PAGE = 12;

export interface AttentionFilters {
  project?: string;
  kind?: AttentionKind[];
  mine?: boolean;
  page: number;
}

export const attentionQuery = (filters: AttentionFilters) =>
  queryOptions({
    queryKey: ["attention", filters] as const,
    queryFn: () =>
      unwrapResponse(
        http.GET("/api/v1/overview/attention", { params: { query: { ...filters, pageSize: ATTENTION_PER_PAGE } } }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });

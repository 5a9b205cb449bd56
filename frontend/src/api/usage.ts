import { keepPreviousData, type QueryClient, queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import type { PriceRequest } from "./types";

export const USAGE_GROUPINGS = ["project", "user", "environment", "task", "month"] as const;
export type UsageGrouping = (typeof USAGE_GROUPINGS)[number];

export interface UsageFilters {
  by: UsageGrouping;
  from: string;
  to: string;
  project?: string;
}

/** The current hour counts as well, so the report is refreshed now and then. */
export const usageQuery = (filters: UsageFilters) =>
  queryOptions({
    queryKey: ["usage", filters] as const,
    queryFn: () => unwrapResponse(http.GET("/api/v1/usage", { params: { query: filters } })),
    placeholderData: keepPreviousData,
    refetchInterval: 60_000,
  });

/** Returns the address of the report as CSV. */
export function buildUsageCsvUrl(filters: UsageFilters): string {
  return `/api/v1/usage?${new URLSearchParams({ ...filters, format: "csv" }).toString()}`;
}

const PRICES = ["prices"] as const;

export const pricesQuery = queryOptions({
  queryKey: PRICES,
  queryFn: () => unwrapResponse(http.GET("/api/v1/prices")),
});

/** Replaces the whole price list. */
export async function savePrices(client: QueryClient, prices: PriceRequest[]): Promise<void> {
  client.setQueryData(PRICES, await unwrapResponse(http.PUT("/api/v1/prices", { body: { prices } })));
}

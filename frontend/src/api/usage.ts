import { keepPreviousData, type QueryClient, queryOptions } from "@tanstack/react-query";
import { http, unwrap } from "./client";
import { ask } from "./loose";

export const USAGE_BY = ["project", "user", "environment", "task", "month"] as const;
export type UsageBy = (typeof USAGE_BY)[number];

export interface UsageFilters {
  by: UsageBy;
  from: string;
  to: string;
  project?: string;
}

/** The running hour counts too, so that a report that is looked at is asked for now and then. */
export const usageQuery = (filters: UsageFilters) =>
  queryOptions({
    queryKey: ["usage", filters] as const,
    queryFn: () => unwrap(http.GET("/api/v1/usage", { params: { query: filters } })),
    placeholderData: keepPreviousData,
    refetchInterval: 60_000,
  });

/** The same for a spreadsheet; the browser downloads it. */
export function usageCsv(filters: UsageFilters): string {
  return `/api/v1/usage?${new URLSearchParams({ ...filters, format: "csv" }).toString()}`;
}

/** Of one GPU for an hour; an empty type or zone stands for any. */
export interface Price {
  gpuType: string;
  zoneId: string;
  zoneName: string;
  perGpuHour: number;
  since: string;
}

export interface PriceList {
  currency: string;
  prices: Price[];
}

const PRICES = ["prices"] as const;

export const pricesQuery = queryOptions({
  queryKey: PRICES,
  queryFn: () => ask<PriceList>("GET", "/prices"),
});

/** What of a price is sent; what was typed and is no number goes as it is. */
export type PriceChange = Pick<Price, "gpuType" | "zoneId"> & { perGpuHour: number | string };

/** The whole list. */
export async function putPrices(client: QueryClient, prices: PriceChange[]): Promise<void> {
  client.setQueryData(PRICES, await ask<PriceList>("PUT", "/prices", { body: { prices } }));
}

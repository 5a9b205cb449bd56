import { useFilters } from "@/lib/use-filters";

const FILTERS = ["view", "project", "zone", "gpuType", "kind", "by", "span"] as const;

/** Returns the overview's filters from the address, with their setters. */
export const useOverviewUrlState = () => useFilters(FILTERS);

export type OverviewUrlState = ReturnType<typeof useOverviewUrlState>;

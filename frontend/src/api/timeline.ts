import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { ask } from "./loose";

export type SpanKind = "held" | "next" | "reserved" | "maintenance";

/** What an environment is used for between two moments; null where nobody knows. Not `sure`: its end is an estimate. */
export interface Span {
  taskId: string | null;
  /** Empty: somebody else's. */
  name: string;
  from: string | null;
  to: string | null;
  sure: boolean;
  kind: SpanKind;
}

export interface TimelineEnvironment {
  id: string;
  name: string;
  zone: string;
  gpuType: string;
  gpuCount: number;
  spans: Span[];
}

export interface TimelineFilters {
  from: string;
  to: string;
  project?: string;
}

/** A long list is asked for less often. */
export const timelineQuery = (filters: TimelineFilters) =>
  queryOptions({
    queryKey: ["queue", "timeline", filters] as const,
    queryFn: () =>
      ask<{ environments: TimelineEnvironment[] }>("GET", "/environments/timeline", { query: { ...filters } }),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => ((state.data?.environments.length ?? 0) > 200 ? 30_000 : 10_000),
  });

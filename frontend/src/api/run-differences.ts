import { queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import type { components } from "./schema";

export type RunDifference = components["schemas"]["RunDifference"];
export type CurveDivergence = components["schemas"]["CurveDivergence"];
export type DifferingFile = components["schemas"]["FileDifference"];

/** What differs between two runs. Code and ended runs do not change; the curves of a running one grow. */
export const runDifferencesQuery = (left: string, right: string) =>
  queryOptions({
    queryKey: ["run-differences", left, right] as const,
    queryFn: () => unwrapResponse(http.GET("/api/v1/runs/differences", { params: { query: { left, right } } })),
    staleTime: 60_000,
  });

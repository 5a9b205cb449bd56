import { queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import { ApiError } from "./errors";
import type { Recommendation } from "./types";

export interface RecommendRequest {
  /** The number of parameters; default: the model's. */
  modelParameters?: number | undefined;
  modelId?: string | undefined;
  environmentIds: string[];
  masterNode?: string | undefined;
  /** Hyperparameters that differ from the model's defaults. */
  hyperparameters?: Record<string, unknown> | undefined;
}

/**
 * Frameworks that the platform recommends, best first. Creates nothing, so the body is the key of the query. null: the
 * platform has no recommendation.
 */
export const recommendQuery = (body: RecommendRequest) =>
  queryOptions({
    queryKey: ["framework-recommendation", body] as const,
    queryFn: async ({ signal }): Promise<Recommendation | null> => {
      try {
        return await unwrapResponse(http.POST("/api/v1/frameworks/recommend", { body, signal }));
      } catch (error) {
        if (error instanceof ApiError && error.status < 500 && error.status !== 401) return null;
        throw error;
      }
    },
    staleTime: 60_000,
  });

import { queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import { ApiError } from "./errors";
import type { Recommendation } from "./types";

export interface RecommendRequest {
  /** The number of a model's weights; without it the model's own. */
  modelParameters?: number | undefined;
  modelId?: string | undefined;
  environmentIds: string[];
  masterNode?: string | undefined;
  /** Those of the model that differ from its defaults. */
  hyperparameters?: Record<string, unknown> | undefined;
}

/**
 * What the platform would choose, best first. Creates nothing: a question, told apart by what is asked. Null where the
 * platform cannot judge what it is asked about.
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

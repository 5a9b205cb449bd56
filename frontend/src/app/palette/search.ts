import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "@/api/client";
import type { Command } from "../commands";

/** A search result with its address. */
export interface SearchResult {
  id: string;
  name: string;
  to: string;
}

const RESULTS_PER_KIND = 5;

/** Searches by name and id, by kind of object. */
const SEARCHES = {
  tasks: async (query: Query) =>
    (await unwrapResponse(http.GET("/api/v1/training-tasks", query))).items.map(
      ({ taskId, taskName }): SearchResult => ({
        id: taskId,
        name: taskName,
        to: `/training/${taskId}`,
      }),
    ),
  environments: async (query: Query) =>
    (await unwrapResponse(http.GET("/api/v1/dev-environments", query))).items.map(({ id, name }): SearchResult => ({
      id,
      name,
      to: `/environments/${id}`,
    })),
  workers: async (query: Query) =>
    (await unwrapResponse(http.GET("/api/v1/workers", query))).items.map(({ id, node }): SearchResult => ({
      id,
      name: node,
      to: `/workers/${id}`,
    })),
  groups: async (query: Query) =>
    (await unwrapResponse(http.GET("/api/v1/worker-groups", query))).items.map(({ id, name }): SearchResult => ({
      id,
      name,
      to: `/workers/groups#${id}`,
    })),
  models: async (query: Query) =>
    (await unwrapResponse(http.GET("/api/v1/models", query))).items.map(({ id, name }): SearchResult => ({
      id,
      name,
      to: `/models#${id}`,
    })),
  datasets: async (query: Query) =>
    (await unwrapResponse(http.GET("/api/v1/datasets", query))).items.map(({ id, name }): SearchResult => ({
      id,
      name,
      to: `/datasets#${id}`,
    })),
};

type Query = { params: { query: { search: string; pageSize: number } }; signal: AbortSignal };
export type SearchKind = keyof typeof SEARCHES;
export const SEARCH_KINDS = Object.keys(SEARCHES) as SearchKind[];

export const searchQuery = (kind: SearchKind, search: string) =>
  queryOptions({
    queryKey: ["palette", kind, search] as const,
    queryFn: ({ signal }) => SEARCHES[kind]({ params: { query: { search, pageSize: RESULTS_PER_KIND } }, signal }),
    enabled: search !== "",
    placeholderData: keepPreviousData,
    retry: false,
  });

/** Returns the commands that contain every word of the text. */
export function filterCommands<C extends Command>(commands: readonly C[], text: string): C[] {
  const words = text.toLowerCase().split(/\s+/);
  return commands.filter(({ label, also }) => {
    const message = `${label} ${also ?? ""}`.toLowerCase();
    return words.every((word) => message.includes(word));
  });
}

import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { http, unwrap } from "@/api/client";
import type { Command } from "../commands";

/** One thing that was found, and where it is shown. */
export interface Hit {
  id: string;
  name: string;
  to: string;
}

const FEW = 5;

/** What is searched, by its kind: the platform finds names and ids. */
const SEARCHES = {
  tasks: async (query: Query) =>
    (await unwrap(http.GET("/api/v1/training-tasks", query))).items.map(({ taskId, taskName }): Hit => ({
      id: taskId,
      name: taskName,
      to: `/training/${taskId}`,
    })),
  environments: async (query: Query) =>
    (await unwrap(http.GET("/api/v1/dev-environments", query))).items.map(({ id, name }): Hit => ({
      id,
      name,
      to: `/environments/${id}`,
    })),
  workers: async (query: Query) =>
    (await unwrap(http.GET("/api/v1/workers", query))).items.map(({ id, node }): Hit => ({
      id,
      name: node,
      to: `/workers/${id}`,
    })),
  groups: async (query: Query) =>
    (await unwrap(http.GET("/api/v1/worker-groups", query))).items.map(({ id, name }): Hit => ({
      id,
      name,
      to: `/workers/groups#${id}`,
    })),
  models: async (query: Query) =>
    (await unwrap(http.GET("/api/v1/models", query))).items.map(({ id, name }): Hit => ({
      id,
      name,
      to: `/models#${id}`,
    })),
  datasets: async (query: Query) =>
    (await unwrap(http.GET("/api/v1/datasets", query))).items.map(({ id, name }): Hit => ({
      id,
      name,
      to: `/datasets#${id}`,
    })),
};

type Query = { params: { query: { search: string; pageSize: number } }; signal: AbortSignal };
export type Kind = keyof typeof SEARCHES;
export const KINDS = Object.keys(SEARCHES) as Kind[];

export const searchQuery = (kind: Kind, search: string) =>
  queryOptions({
    queryKey: ["palette", kind, search] as const,
    queryFn: ({ signal }) => SEARCHES[kind]({ params: { query: { search, pageSize: FEW } }, signal }),
    enabled: search !== "",
    placeholderData: keepPreviousData,
    retry: false,
  });

/** Those in which every word of the text stands. */
export function matching<C extends Command>(commands: readonly C[], text: string): C[] {
  const words = text.toLowerCase().split(/\s+/);
  return commands.filter(({ label, also }) => {
    const said = `${label} ${also ?? ""}`.toLowerCase();
    return words.every((word) => said.includes(word));
  });
}

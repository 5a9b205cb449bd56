import { queryOptions } from "@tanstack/react-query";
import { fetchAllPages, http, unwrapResponse } from "./client";
import type { components } from "./schema";
import { taskKeys } from "./tasks";

export type MediaItem = components["schemas"]["MediaItem"];

const POLL_MS = 15_000;
/** A larger file can only be downloaded. */
export const MAX_SHOWN_BYTES = 2 << 20;

/** Everything that the script logged besides numbers, oldest step first. */
export const mediaQuery = (id: string, live: boolean) =>
  queryOptions({
    queryKey: [...taskKeys.one(id), "media"] as const,
    queryFn: () =>
      fetchAllPages((page) =>
        unwrapResponse(
          http.GET("/api/v1/training-tasks/{task_id}/media", {
            params: { path: { task_id: id }, query: { page, pageSize: 200, ordering: "step" } },
          }),
        ),
      ),
    refetchInterval: live ? POLL_MS : false,
  });

export function buildMediaUrl(id: string, path: string): string {
  return `/api/v1/training-tasks/${id}/outputs/content?${new URLSearchParams({ path }).toString()}`;
}

/** A file that was logged. It never changes, and is not kept for long once it is out of sight. */
export const mediaFileQuery = (id: string, path: string) =>
  queryOptions({
    queryKey: [...taskKeys.one(id), "media-file", path] as const,
    queryFn: async ({ signal }): Promise<Blob | null> => {
      const answer = await fetch(buildMediaUrl(id, path), { signal });
      if (!answer.ok) throw new Error(`${answer.status} ${path}`);
      if (Number(answer.headers.get("Content-Length") ?? 0) > MAX_SHOWN_BYTES) {
        void answer.body?.cancel();
        return null; // the cache takes no undefined
      }
      const file = await answer.blob();
      return file.size > MAX_SHOWN_BYTES ? null : file;
    },
    staleTime: Infinity,
    gcTime: 60_000,
    structuralSharing: false,
  });

import { mutationOptions, type QueryClient, queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";

const POLL_MS = 30_000;
/** Entries in the inbox's panel. */
export const INBOX_PER_PAGE = 10;

const inboxKeys = { all: ["inbox"] as const };

/** The number of unread entries, refreshed while the page is visible. */
export const unreadQuery = queryOptions({
  queryKey: [...inboxKeys.all, "unread"] as const,
  queryFn: async () =>
    (
      await unwrapResponse(
        http.GET("/api/v1/inbox", { params: { query: { unread: true, grouped: true, pageSize: 1 } } }),
      )
    ).unread,
  refetchInterval: POLL_MS,
});

export const inboxQuery = (page: number) =>
  queryOptions({
    queryKey: [...inboxKeys.all, "page", page] as const,
    queryFn: () =>
      unwrapResponse(
        http.GET("/api/v1/inbox", { params: { query: { page, grouped: true, pageSize: INBOX_PER_PAGE } } }),
      ),
  });

/** Marks entries as read; without ids, all of them. */
export const markInboxRead = (client: QueryClient) =>
  mutationOptions({
    mutationFn: (ids: string[] | null) => unwrapResponse(http.POST("/api/v1/inbox/read", { body: { ids } })),
    onSuccess: () => client.invalidateQueries({ queryKey: inboxKeys.all }),
  });

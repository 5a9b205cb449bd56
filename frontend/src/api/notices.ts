import { queryOptions } from "@tanstack/react-query";
import { fetchAllPages, http, unwrapResponse } from "./client";
import type { NoticeChannelChange, NoticeChannelRequest, NoticeRuleChange, NoticeRuleRequest } from "./types";

const PAGE = 100;
export const DELIVERIES_PAGE = 10;

export const noticeKeys = {
  channels: ["notice-channels"] as const,
  deliveries: (channel: string) => ["notice-channels", channel, "deliveries"] as const,
  rules: ["notice-rules"] as const,
  kinds: ["notice-kinds"] as const,
};

export const channelsQuery = queryOptions({
  queryKey: noticeKeys.channels,
  queryFn: () =>
    fetchAllPages((page) =>
      unwrapResponse(http.GET("/api/v1/notice-channels", { params: { query: { page, pageSize: PAGE } } })),
    ),
});

export const rulesQuery = queryOptions({
  queryKey: noticeKeys.rules,
  queryFn: () =>
    fetchAllPages((page) =>
      unwrapResponse(http.GET("/api/v1/notice-rules", { params: { query: { page, pageSize: PAGE } } })),
    ),
});

/** The kinds of notices, with their titles. */
export const kindsQuery = queryOptions({
  queryKey: noticeKeys.kinds,
  queryFn: async () => (await unwrapResponse(http.GET("/api/v1/notice-kinds"))).items,
  staleTime: Infinity,
});

const ofChannel = (id: string) => ({ path: { channel_id: id } });
const ofRule = (id: string) => ({ path: { rule_id: id } });

export const deliveriesQuery = (id: string, page: number) =>
  queryOptions({
    queryKey: [...noticeKeys.deliveries(id), page] as const,
    queryFn: () =>
      unwrapResponse(
        http.GET("/api/v1/notice-channels/{channel_id}/deliveries", {
          params: { ...ofChannel(id), query: { page, pageSize: DELIVERIES_PAGE } },
        }),
      ),
  });

/** Creates a channel. Only this answer holds the secret that signs its webhooks. */
export const createChannel = (body: NoticeChannelRequest) =>
  unwrapResponse(http.POST("/api/v1/notice-channels", { body }));

export const updateChannel = (id: string, body: NoticeChannelChange) =>
  unwrapResponse(http.PATCH("/api/v1/notice-channels/{channel_id}", { params: ofChannel(id), body }));

export const deleteChannel = (id: string) =>
  unwrapResponse(http.DELETE("/api/v1/notice-channels/{channel_id}", { params: ofChannel(id) }));

export const testChannel = (id: string) =>
  unwrapResponse(http.POST("/api/v1/notice-channels/{channel_id}/test", { params: ofChannel(id) }));

export const createRule = (body: NoticeRuleRequest) => unwrapResponse(http.POST("/api/v1/notice-rules", { body }));

export const updateRule = (id: string, body: NoticeRuleChange) =>
  unwrapResponse(http.PATCH("/api/v1/notice-rules/{rule_id}", { params: ofRule(id), body }));

export const deleteRule = (id: string) =>
  unwrapResponse(http.DELETE("/api/v1/notice-rules/{rule_id}", { params: ofRule(id) }));

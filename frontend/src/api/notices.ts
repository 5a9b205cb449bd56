import { queryOptions } from "@tanstack/react-query";
import { everyPage, http, unwrap } from "./client";
import type { NoticeChannelChange, NoticeChannelRequest, NoticeRuleChange, NoticeRuleRequest } from "./types";

const PAGE = 100;
export const DELIVERIES_PAGE = 10;

export const noticeKeys = {
  channels: ["notice-channels"] as const,
  deliveries: (channel: string) => ["notice-channels", channel, "deliveries"] as const,
  rules: ["notice-rules"] as const,
};

export const channelsQuery = queryOptions({
  queryKey: noticeKeys.channels,
  queryFn: () =>
    everyPage((page) => unwrap(http.GET("/api/v1/notice-channels", { params: { query: { page, pageSize: PAGE } } }))),
});

export const rulesQuery = queryOptions({
  queryKey: noticeKeys.rules,
  queryFn: () =>
    everyPage((page) => unwrap(http.GET("/api/v1/notice-rules", { params: { query: { page, pageSize: PAGE } } }))),
});

const ofChannel = (id: string) => ({ path: { channel_id: id } });
const ofRule = (id: string) => ({ path: { rule_id: id } });

export const deliveriesQuery = (id: string, page: number) =>
  queryOptions({
    queryKey: [...noticeKeys.deliveries(id), page] as const,
    queryFn: () =>
      unwrap(
        http.GET("/api/v1/notice-channels/{channel_id}/deliveries", {
          params: { ...ofChannel(id), query: { page, pageSize: DELIVERIES_PAGE } },
        }),
      ),
  });

/** The answer holds what webhooks are signed with, this once. */
export const createChannel = (body: NoticeChannelRequest) => unwrap(http.POST("/api/v1/notice-channels", { body }));

export const changeChannel = (id: string, body: NoticeChannelChange) =>
  unwrap(http.PATCH("/api/v1/notice-channels/{channel_id}", { params: ofChannel(id), body }));

export const deleteChannel = (id: string) =>
  unwrap(http.DELETE("/api/v1/notice-channels/{channel_id}", { params: ofChannel(id) }));

export const testChannel = (id: string) =>
  unwrap(http.POST("/api/v1/notice-channels/{channel_id}/test", { params: ofChannel(id) }));

export const createRule = (body: NoticeRuleRequest) => unwrap(http.POST("/api/v1/notice-rules", { body }));

export const changeRule = (id: string, body: NoticeRuleChange) =>
  unwrap(http.PATCH("/api/v1/notice-rules/{rule_id}", { params: ofRule(id), body }));

export const deleteRule = (id: string) => unwrap(http.DELETE("/api/v1/notice-rules/{rule_id}", { params: ofRule(id) }));

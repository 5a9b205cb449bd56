import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";
import type { components } from "./schema";
import { getLanguage } from "@/i18n";
import { http, unwrapResponse } from "./client";

export type AuditEvent = components["schemas"]["AuditEventItem"];

const PAGE = 50;
const DAY = 86_400_000;
/** The longest span of an export, as the platform has it. */
export const MAX_EXPORT_DAYS = 366;

/** Filters of the trail by the API's names. `begin`, `end`: ISO 8601. */
export const AUDIT_FILTERS = ["project", "actor", "action", "target", "token", "address", "begin", "end"] as const;
export type AuditFilters = Partial<Record<(typeof AUDIT_FILTERS)[number], string>>;

/** The events, the newest first, page after page. */
export const auditEventsQuery = (filters: AuditFilters) =>
  infiniteQueryOptions({
    queryKey: ["audit", filters, getLanguage()],
    queryFn: ({ pageParam }) =>
      unwrapResponse(
        http.GET("/api/v1/audit-events", { params: { query: { ...filters, cursor: pageParam, pageSize: PAGE } } }),
      ),
    initialPageParam: "",
    getNextPageParam: ({ nextCursor }) => nextCursor,
    placeholderData: keepPreviousData,
  });

export const auditActionsQuery = () =>
  queryOptions({
    queryKey: ["audit-actions", getLanguage()],
    queryFn: async () => (await unwrapResponse(http.GET("/api/v1/audit-events/actions"))).items,
    staleTime: Infinity,
  });

/** Returns the address of the events as lines of JSON. Without an end they end at `now`, without a beginning they begin
    as early as an export may. */
export function buildAuditExportUrl({ begin, end, ...filters }: AuditFilters, now: number): string {
  const last = end ? Date.parse(end) : now;
  const first = begin ?? new Date(last - MAX_EXPORT_DAYS * DAY).toISOString();
  const query = { ...filters, begin: first, end: new Date(last).toISOString() };
  return `/api/v1/audit-events/export?${new URLSearchParams(query).toString()}`;
}

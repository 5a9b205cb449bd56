import { queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import { ApiError } from "./errors";
import {
  appendLogPage,
  type Log,
  type LogLevel,
  type LogLine,
  EMPTY_LOG,
  LINES_PER_PAGE,
  type RankChoice,
  readPage,
} from "./logs";
import { taskKeys } from "./tasks";

export interface LogFilter {
  search: string;
  /** `search` is an RE2 expression. */
  regex: boolean;
  /** The lowest level. */
  level?: LogLevel | undefined;
  /** An ISO time. */
  since?: string | undefined;
  until?: string | undefined;
}

export const NO_FILTER: LogFilter = { search: "", regex: false };

/** A line of one rank's log. */
export type LogPosition = Pick<LogLine, "rank" | "offset">;

export const POLL_MS = 2_000;

/**
 * Returns whether the platform has to search (the whole log). The page itself finds plain texts in the lines that it
 * holds.
 */
export function needsServerSearch({ search, regex, level, since, until }: LogFilter): boolean {
  return Boolean((regex && search) || level || since || until);
}

/** Returns whether the platform refused the expression. */
export function isExpressionInvalid(error: unknown): error is ApiError {
  return error instanceof ApiError && error.code.startsWith("REGEX_");
}

/** The lines of a log that match a filter, shown page by page. While the task runs, new ones are requested. */
export const logSearchQuery = (id: string, attempt: number, rank: RankChoice, filter: LogFilter, live: boolean) =>
  queryOptions({
    queryKey: [...taskKeys.one(id), "found", attempt, rank, filter] as const,
    queryFn: async ({ client, queryKey, signal }) => {
      let log = client.getQueryData<Log>(queryKey) ?? EMPTY_LOG;
      for (;;) {
        const { cursor } = log;
        const page = await readPage(
          id,
          { rank: String(rank), attempt, cursor, limit: LINES_PER_PAGE, ...filter },
          signal,
        );
        log = { ...appendLogPage(log, page.lines), cursor: page.cursor, read: log.read || page.end };
        if (page.end || page.cursor === cursor) return log;
        client.setQueryData(queryKey, log);
      }
    },
    staleTime: Infinity,
    structuralSharing: false,
    refetchInterval: live ? POLL_MS : false,
  });

const CONTEXT_BYTES_BEFORE = 1 << 18;

/** The lines around one line that the page does not hold. */
export const logContextQuery = (id: string, attempt: number, { rank, offset }: LogPosition) =>
  queryOptions({
    queryKey: [...taskKeys.one(id), "near", attempt, rank, offset] as const,
    queryFn: async ({ signal }) => {
      const start = Math.max(0, offset - CONTEXT_BYTES_BEFORE);
      let log: Log = { ...EMPTY_LOG, cursor: `${attempt}@${rank}:${start}` };
      for (let read = false; ;) {
        const page = await readPage(id, { rank: String(rank), cursor: log.cursor, limit: LINES_PER_PAGE }, signal);
        const full = page.lines.filter(({ offset: begin }) => begin > start || start === 0);
        log = { ...appendLogPage(log, full), cursor: page.cursor };
        if (page.end || read) return log;
        read = (log.newest[rank] ?? -1) >= offset;
      }
    },
    staleTime: Infinity,
    structuralSharing: false,
  });

/** Returns the position of the first error of any rank. */
export function findFirstError(id: string, attempt: number) {
  const params = { path: { task_id: id }, query: { attempt } };
  return unwrapResponse(http.GET("/api/v1/training-tasks/{task_id}/logs/first-error", { params }));
}

/** Returns the position of the first line at a time or after it; of all ranks, the earliest. */
export async function findFirstLineAfter(
  id: string,
  attempt: number,
  rank: RankChoice,
  since: string,
): Promise<LogLine | undefined> {
  for (let cursor: string | undefined; ;) {
    const page = await readPage(id, { rank: String(rank), attempt, cursor, since, limit: 1 });
    const earliest = page.lines.sort((one, other) => (one.at ?? 0) - (other.at ?? 0))[0];
    if (earliest || page.end || page.cursor === cursor) return earliest;
    cursor = page.cursor;
  }
}

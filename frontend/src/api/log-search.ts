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
  /** `search` is an expression that RE2 reads. */
  regex: boolean;
  /** That, or above it. */
  level?: LogLevel | undefined;
  /** ISO. */
  since?: string | undefined;
  until?: string | undefined;
}

export const NO_FILTER: LogFilter = { search: "", regex: false };

/** A line of one rank. */
export type LogPosition = Pick<LogLine, "rank" | "offset">;

export const POLL_MS = 2_000;

/** A plain text is found in the lines that are here; anything else the platform finds, in the whole log. */
export function needsServerSearch({ search, regex, level, since, until }: LogFilter): boolean {
  return Boolean((regex && search) || level || since || until);
}

/** Whether it is the expression that the platform does not take. */
export function isExpressionInvalid(error: unknown): error is ApiError {
  return error instanceof ApiError && error.code.startsWith("REGEX_");
}

/** What a filter leaves of a log, shown as it is found; while the task lives, what is new is asked for. */
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

/** Some of a log before a line and after it, where the line is not among those that are kept. */
export const logContextQuery = (id: string, attempt: number, { rank, offset }: LogPosition) =>
  queryOptions({
    queryKey: [...taskKeys.one(id), "near", attempt, rank, offset] as const,
    queryFn: async ({ signal }) => {
      const start = Math.max(0, offset - CONTEXT_BYTES_BEFORE);
      let log: Log = { ...EMPTY_LOG, cursor: `${attempt}@${rank}:${start}` };
      for (let read = false; ;) {
        const page = await readPage(id, { rank: String(rank), cursor: log.cursor, limit: LINES_PER_PAGE }, signal);
        const whole = page.lines.filter(({ offset: begin }) => begin > start || start === 0);
        log = { ...appendLogPage(log, whole), cursor: page.cursor };
        if (page.end || read) return log;
        read = (log.newest[rank] ?? -1) >= offset;
      }
    },
    staleTime: Infinity,
    structuralSharing: false,
  });

/** Where the first error is, whichever rank's. */
export function findFirstError(id: string, attempt: number) {
  const params = { path: { task_id: id }, query: { attempt } };
  return unwrapResponse(http.GET("/api/v1/training-tasks/{task_id}/logs/first-error", { params }));
}

/** The first line at a time or after it; with all ranks the earliest of them. */
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

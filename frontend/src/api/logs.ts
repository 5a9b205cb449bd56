import { queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import { removeCodes } from "@/lib/ansi";
import type { paths } from "./schema";
import { taskKeys } from "./tasks";

export type RankChoice = number | "all";

export type LogLevel = "debug" | "info" | "warning" | "error";

export interface LogLine {
  rank: number;
  /** Bytes from the start of the rank's log. Of an overwritten line, the start of its newest text. */
  offset: number;
  /** Without escape sequences. */
  text: string;
  /** The text as it was printed, if it has escape sequences such as colours. */
  printed?: string | undefined;
  level?: LogLevel | undefined;
  /** Unix milliseconds, if the line has a time. */
  at?: number | undefined;
  /** The line is not complete yet, such as a progress bar, or several one below the other. */
  open?: boolean | undefined;
}

/** A log line in the API. */
export interface ApiLogLine {
  offset: number;
  text: string;
  level?: LogLevel | null;
  time?: string | null;
  open?: boolean;
}

export interface Log {
  /** Complete lines. */
  lines: LogLine[];
  /** The incomplete line of each rank. */
  open: ReadonlyMap<number, LogLine>;
  /** Opaque; where the next page starts. */
  cursor: string | undefined;
  /** The offset of each rank's newest complete line. */
  newest: Record<number, number>;
  /** Characters of all lines. */
  size: number;
  /** Older lines were dropped. */
  cut: boolean;
  /** The end of the log has been reached once. */
  read: boolean;
}

/** The page holds no more lines than this; the download has all. */
export const MAX_LOG_LINES = 200_000;
export const MAX_LOG_CHARACTERS = 50_000_000;
export const LINES_PER_PAGE = 5_000;
const MAX_PAGES_READ = MAX_LOG_LINES / LINES_PER_PAGE;
const NO_LINES: LogLine[] = [];
export const EMPTY_LOG: Log = {
  lines: [],
  open: new Map(),
  cursor: undefined,
  newest: {},
  size: 0,
  cut: false,
  read: false,
};

export const logsKey = (id: string) => [...taskKeys.one(id), "logs"] as const;
export const logKey = (id: string, attempt: number, rank: RankChoice) => [...logsKey(id), attempt, rank] as const;

export function parseLogLine(rank: number, { offset, text: printed, level, time, open }: ApiLogLine): LogLine {
  const text = removeCodes(printed);
  return {
    rank,
    offset,
    text,
    printed: text === printed ? undefined : printed,
    level: level ?? undefined,
    at: time ? Date.parse(time) : undefined,
    open,
  };
}

/**
 * Returns the complete lines of a log (or `lines` of them), followed by the incomplete ones, as a terminal shows them.
 */
export function appendOpenLines(
  log: Log | undefined,
  lines: LogLine[] = log?.lines ?? NO_LINES,
  needle = "",
): LogLine[] {
  const ranks = [...(log?.open.values() ?? [])].sort((one, other) => one.rank - other.rank);
  const open = ranks.flatMap(splitRows).filter(({ text }) => text && text.toLowerCase().includes(needle));
  return open.length > 0 ? [...lines, ...open] : lines;
}

/** Returns a line for each row of an open line: bars one below the other come as one text. */
function splitRows(line: LogLine): LogLine[] {
  if (!line.text.includes("\n")) return [line];
  const printed = line.printed?.split("\n");
  return line.text.split("\n").map((text, row) => ({ ...line, text, printed: printed?.[row] }));
}

type Query = NonNullable<paths["/api/v1/training-tasks/{task_id}/logs"]["get"]["parameters"]["query"]>;

export async function readPage(id: string, query: Query, signal?: AbortSignal) {
  const page = await unwrapResponse(
    http.GET("/api/v1/training-tasks/{task_id}/logs", { params: { path: { task_id: id }, query }, signal }),
  );
  return { ...page, lines: page.lines.map((line) => parseLogLine(line.rank ?? Number(page.rank), line)) };
}

/**
 * Reads a log from where the last read stopped, and shows each page as it arrives. Of a log longer than the limit only
 * the first pages that fit and the last page are read.
 */
export const logQuery = (id: string, attempt: number, rank: RankChoice) =>
  queryOptions({
    queryKey: logKey(id, attempt, rank),
    queryFn: async ({ client, queryKey, signal }) => {
      let log = client.getQueryData<Log>(queryKey) ?? EMPTY_LOG;
      for (let pages = 0; ; pages++) {
        if (pages === MAX_PAGES_READ) log = { ...EMPTY_LOG, cut: true };
        const query = {
          rank: String(rank),
          attempt,
          cursor: log.cursor,
          limit: LINES_PER_PAGE,
          tail: log.cut && !log.cursor,
        };
        const page = await readPage(id, query, signal);
        log = { ...appendLogPage(log, page.lines), cursor: page.cursor, read: log.read || page.end };
        if (page.end || page.cursor === query.cursor) return log;
        client.setQueryData(queryKey, log);
      }
    },
    staleTime: Infinity,
    structuralSharing: false,
  });

/** The newest line of a rank, refreshed while the pointer is on the rank. */
export const lastLineQuery = (id: string, attempt: number, rank: number, live: boolean) =>
  queryOptions({
    queryKey: [...taskKeys.one(id), "last-line", attempt, rank] as const,
    queryFn: async () => {
      const page = await readPage(id, { rank: String(rank), attempt, tail: true, limit: 1 });
      return page.lines.at(-1)?.text.split("\n").at(-1) ?? "";
    },
    refetchInterval: live ? 2_000 : false,
  });

/** Returns what a terminal shows of a line with carriage returns: for a progress bar, its newest state. */
export function getOverwrittenText(line: string): string {
  const states = line.replace(/\r+$/, "");
  return states.slice(states.lastIndexOf("\r") + 1);
}

/** Appends lines, without those that the log has already: offsets only grow. */
export function appendLogPage(log: Log, lines: LogLine[]): Log {
  const newest = { ...log.newest };
  const open = new Map(log.open);
  const fresh = lines.filter((line) => {
    if (line.offset <= (newest[line.rank] ?? -1)) return false;
    if ((open.get(line.rank)?.offset ?? -1) <= line.offset) {
      if (line.open) open.set(line.rank, line);
      else open.delete(line.rank);
    }
    if (line.open) return false;
    newest[line.rank] = line.offset;
    return true;
  });
  if (fresh.length === 0) return lines.some((line) => open.get(line.rank) === line) ? { ...log, open } : log;
  const all = [...log.lines, ...fresh];
  let size = fresh.reduce((sum, { text }) => sum + text.length, log.size);
  let gone = 0;
  while (all.length - gone > MAX_LOG_LINES || size > MAX_LOG_CHARACTERS) size -= all[gone++]?.text.length ?? 0;
  return { ...log, open, newest, size, lines: gone ? all.slice(gone) : all, cut: log.cut || gone > 0 };
}

export function buildLogDownloadUrl(id: string, attempt: number, rank: RankChoice): string {
  return `/api/v1/training-tasks/${id}/logs/download?rank=${rank}&attempt=${attempt}`;
}

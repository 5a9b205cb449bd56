import { queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import type { paths } from "./schema";
import { taskKeys } from "./tasks";

export type RankChoice = number | "all";

export type LogLevel = "debug" | "info" | "warning" | "error";

export interface LogLine {
  rank: number;
  /** Bytes from the start of that rank's log; of a line that was printed over, to its newest state. */
  offset: number;
  text: string;
  level?: LogLevel | undefined;
  /** Milliseconds; of a line that tells its time. */
  at?: number | undefined;
  /** It is not complete yet: a progress bar, as it is now. */
  open?: boolean | undefined;
}

/** As the platform tells a line. */
export interface ApiLogLine {
  offset: number;
  text: string;
  level?: LogLevel | null;
  time?: string | null;
  open?: boolean;
}

export interface Log {
  /** Complete ones. */
  lines: LogLine[];
  /** By rank; each is replaced by the next line of its rank. */
  open: ReadonlyMap<number, LogLine>;
  /** Where the next page starts; opaque. */
  cursor: string | undefined;
  /** The offset of the newest complete line of each rank. */
  newest: Record<number, number>;
  /** Characters of all lines. */
  size: number;
  /** Older lines were left out. */
  cut: boolean;
  /** Its end was reached once. */
  read: boolean;
}

/** More than this is not kept in the page; the download has it all. */
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

export function parseLogLine(rank: number, { offset, text, level, time, open }: ApiLogLine): LogLine {
  return { rank, offset, text, level: level ?? undefined, at: time ? Date.parse(time) : undefined, open };
}

/** The complete lines of a log, or `lines` of them, and below them those that are still printed over, as in a terminal. */
export function appendOpenLines(
  log: Log | undefined,
  lines: LogLine[] = log?.lines ?? NO_LINES,
  needle = "",
): LogLine[] {
  const open = [...(log?.open.values() ?? [])].filter(({ text }) => text && text.toLowerCase().includes(needle));
  return open.length > 0 ? [...lines, ...open.sort((one, other) => one.rank - other.rank)] : lines;
}

type Query = NonNullable<paths["/api/v1/training-tasks/{task_id}/logs"]["get"]["parameters"]["query"]>;

export async function readPage(id: string, query: Query, signal?: AbortSignal) {
  const page = await unwrapResponse(
    http.GET("/api/v1/training-tasks/{task_id}/logs", { params: { path: { task_id: id }, query }, signal }),
  );
  return { ...page, lines: page.lines.map((line) => parseLogLine(line.rank ?? Number(page.rank), line)) };
}

/**
 * Reads on from where it stopped, to the end, and shows each page as it comes. Of a log that is longer than what is kept
 * it reads no more than that and the last page.
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

/** The newest line of a rank, while somebody points at it; without the colours that are meant for terminals. */
export const lastLineQuery = (id: string, attempt: number, rank: number, live: boolean) =>
  queryOptions({
    queryKey: [...taskKeys.one(id), "last-line", attempt, rank] as const,
    queryFn: async () => {
      const page = await readPage(id, { rank: String(rank), attempt, tail: true, limit: 1 });
      return stripAnsi(page.lines.at(-1)?.text ?? "");
    },
    refetchInterval: live ? 2_000 : false,
  });

// eslint-disable-next-line no-control-regex
const ANSI = /\u001b\[[0-9;?]*[A-Za-z]/g;

/** Colours for terminals mean nothing here. */
export function stripAnsi(text: string): string {
  return text.replace(ANSI, "");
}

/** What a terminal shows of a line in the end: of a progress bar, its newest state. */
export function getOverwrittenText(line: string): string {
  const states = line.replace(/\r+$/, "");
  return states.slice(states.lastIndexOf("\r") + 1);
}

/** Lines that are already here are left out: a log's offsets only grow. */
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

import { useQuery } from "@tanstack/react-query";
import { useDeferredValue, useMemo, useState } from "react";
import {
  type LogFilter,
  logSearchQuery,
  logContextQuery,
  needsServerSearch,
  type LogPosition,
  POLL_MS,
} from "@/api/log-search";
import { logQuery, type LogLine, type RankChoice, appendOpenLines } from "@/api/logs";
import { isFinished } from "@/api/tasks";
import type { Task } from "@/api/types";
import { LogSearch } from "./search";

const NONE: LogLine[] = [];

interface LogRequest {
  task: Task;
  attempt: number;
  rank: RankChoice;
  filter: LogFilter;
  /** The line to show with those around it. */
  place: LogPosition | undefined;
  /** The event stream does not send this rank's log, so it is polled. */
  polls: boolean;
}

/**
 * Returns the lines to show: the log that the page holds, the lines that match a filter, or those around a line that
 * the page does not hold.
 */
export function useLog({ task, attempt, rank, filter, place, polls }: LogRequest) {
  const id = task.taskId;
  const begun = attempt > 0;
  const live = !isFinished(task) && attempt === task.attempt;
  const filtered = needsServerSearch(filter);
  const full = useQuery({
    ...logQuery(id, attempt, rank),
    enabled: begun,
    refetchInterval: polls && live ? POLL_MS : false,
  });
  const found = useQuery({ ...logSearchQuery(id, attempt, rank, filter, live), enabled: begun && filtered });
  const lines = full.data?.lines ?? NONE;
  const needle = useDeferredValue(filtered ? "" : filter.regex ? "" : filter.search.toLowerCase());
  const [finder] = useState(() => new LogSearch());
  const searched = useMemo(
    () => appendOpenLines(full.data, finder.among(lines, needle), needle),
    [finder, full.data, lines, needle],
  );

  const wanted = filtered || needle ? undefined : place;
  const index = useMemo(() => findLineIndex(searched, wanted), [searched, wanted]);
  const away = wanted !== undefined && index === -1 && (full.data?.cut ?? false) && [wanted.rank, "all"].includes(rank);
  const near = useQuery({ ...logContextQuery(id, attempt, wanted ?? { rank: 0, offset: 0 }), enabled: begun && away });
  const around = away ? appendOpenLines(near.data) : NONE;

  const request = filtered ? found : away ? near : full;
  return {
    lines: filtered ? appendOpenLines(found.data) : away ? around : searched,
    /** Index of the line to scroll to; -1: not loaded. */
    index: away ? findLineIndex(around, wanted) : index,
    away,
    needle,
    narrowed: filtered || needle !== "",
    searching: filtered && !found.data?.read && !found.isError,
    cut: request.data?.cut ?? false,
    pending: begun && request.isPending,
    error: request.error,
    retry: () => void request.refetch(),
  };
}

function findLineIndex(lines: LogLine[], place: LogPosition | undefined): number {
  return place ? lines.findIndex(({ rank, offset }) => rank === place.rank && offset === place.offset) : -1;
}

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
  /** A line to be shown with those around it. */
  place: LogPosition | undefined;
  /** The event stream tells of another rank than this. */
  polls: boolean;
}

/** What a log shows: all that is kept of it, what a filter leaves of it, or what is around a line that is not kept. */
export function useLog({ task, attempt, rank, filter, place, polls }: LogRequest) {
  const id = task.taskId;
  const begun = attempt > 0;
  const live = !isFinished(task) && attempt === task.attempt;
  const filtered = needsServerSearch(filter);
  const whole = useQuery({
    ...logQuery(id, attempt, rank),
    enabled: begun,
    refetchInterval: polls && live ? POLL_MS : false,
  });
  const found = useQuery({ ...logSearchQuery(id, attempt, rank, filter, live), enabled: begun && filtered });
  const lines = whole.data?.lines ?? NONE;
  const needle = useDeferredValue(filtered ? "" : filter.regex ? "" : filter.search.toLowerCase());
  const [finder] = useState(() => new LogSearch());
  const searched = useMemo(
    () => appendOpenLines(whole.data, finder.among(lines, needle), needle),
    [finder, whole.data, lines, needle],
  );

  const wanted = filtered || needle ? undefined : place;
  const index = useMemo(() => findLineIndex(searched, wanted), [searched, wanted]);
  const away =
    wanted !== undefined && index === -1 && (whole.data?.cut ?? false) && [wanted.rank, "all"].includes(rank);
  const near = useQuery({ ...logContextQuery(id, attempt, wanted ?? { rank: 0, offset: 0 }), enabled: begun && away });
  const around = away ? appendOpenLines(near.data) : NONE;

  const asked = filtered ? found : away ? near : whole;
  return {
    lines: filtered ? appendOpenLines(found.data) : away ? around : searched,
    /** Where the line is that was to be shown; -1: not here (yet). */
    index: away ? findLineIndex(around, wanted) : index,
    away,
    needle,
    narrowed: filtered || needle !== "",
    searching: filtered && !found.data?.read && !found.isError,
    cut: asked.data?.cut ?? false,
    pending: begun && asked.isPending,
    error: asked.error,
    retry: () => void asked.refetch(),
  };
}

function findLineIndex(lines: LogLine[], place: LogPosition | undefined): number {
  return place ? lines.findIndex(({ rank, offset }) => rank === place.rank && offset === place.offset) : -1;
}

import { useQuery } from "@tanstack/react-query";
import { useDeferredValue, useMemo, useState } from "react";
import { type Filter, foundQuery, nearQuery, needsPlatform, type Place, POLL_MS } from "@/api/log-search";
import { logQuery, type LogLine, type RankChoice, withOpen } from "@/api/logs";
import { isOver } from "@/api/tasks";
import type { Task } from "@/api/types";
import { Search } from "./search";

const NONE: LogLine[] = [];

interface Wanted {
  task: Task;
  attempt: number;
  rank: RankChoice;
  filter: Filter;
  /** A line to be shown with those around it. */
  place: Place | undefined;
  /** The event stream tells of another rank than this. */
  polls: boolean;
}

/** What a log shows: all that is kept of it, what a filter leaves of it, or what is around a line that is not kept. */
export function useLog({ task, attempt, rank, filter, place, polls }: Wanted) {
  const id = task.taskId;
  const begun = attempt > 0;
  const live = !isOver(task) && attempt === task.attempt;
  const filtered = needsPlatform(filter);
  const whole = useQuery({
    ...logQuery(id, attempt, rank),
    enabled: begun,
    refetchInterval: polls && live ? POLL_MS : false,
  });
  const found = useQuery({ ...foundQuery(id, attempt, rank, filter, live), enabled: begun && filtered });
  const lines = whole.data?.lines ?? NONE;
  const needle = useDeferredValue(filtered ? "" : filter.regex ? "" : filter.search.toLowerCase());
  const [finder] = useState(() => new Search());
  const searched = useMemo(
    () => withOpen(whole.data, finder.among(lines, needle), needle),
    [finder, whole.data, lines, needle],
  );

  const wanted = filtered || needle ? undefined : place;
  const index = useMemo(() => indexOf(searched, wanted), [searched, wanted]);
  const away =
    wanted !== undefined && index === -1 && (whole.data?.cut ?? false) && [wanted.rank, "all"].includes(rank);
  const near = useQuery({ ...nearQuery(id, attempt, wanted ?? { rank: 0, offset: 0 }), enabled: begun && away });
  const around = away ? withOpen(near.data) : NONE;

  const asked = filtered ? found : away ? near : whole;
  return {
    lines: filtered ? withOpen(found.data) : away ? around : searched,
    /** Where the line is that was to be shown; -1: not here (yet). */
    index: away ? indexOf(around, wanted) : index,
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

function indexOf(lines: LogLine[], place: Place | undefined): number {
  return place ? lines.findIndex(({ rank, offset }) => rank === place.rank && offset === place.offset) : -1;
}

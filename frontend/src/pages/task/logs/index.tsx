import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import {
  type LogFilter,
  findFirstLineAfter,
  findFirstError,
  logSearchQuery,
  isExpressionInvalid,
  needsServerSearch,
  NO_FILTER,
} from "@/api/log-search";
import type { RankChoice } from "@/api/logs";
import type { Task } from "@/api/types";
import { usePageCommands } from "@/app/commands";
import { cx } from "@/lib/cx";
import { formatBytes } from "@/lib/format";
import { useDebounced } from "@/lib/hooks";
import { useLocalStorage } from "@/lib/use-local-storage";
import { toastError } from "@/ui/errors";
import { toast } from "@/ui/toast";
import { LogPane, type LogView } from "./log-pane";
import { ScrollSync } from "./log-times";
import { Toolbar } from "./toolbar";

const MAX_LOGS = 4;
const TYPING_MS = 300;

interface LogsProps {
  task: Task;
  /** The rank of the first log, whose lines come with the event stream. */
  rank: RankChoice;
  onRank: (rank: RankChoice) => void;
}

/** Without an attempt, the newest. */
type Chosen = Omit<LogView, "attempt"> & { attempt?: number | undefined };

export function Logs({ task, rank, onRank }: LogsProps) {
  const { t } = useTranslation();
  const { taskId } = task;
  const [chosen, setChosen] = useState<Chosen[]>([{ id: 0, rank }]);
  const [filter, setFilter] = useState(NO_FILTER);
  const [times, rememberTimes] = useLocalStorage("logs.times");
  const [together] = useState(() => new ScrollSync());
  const [linked, setLinked] = useState(true);
  const [looking, setLooking] = useState(false);
  const views = useMemo(
    () =>
      chosen.map((view, index): LogView => {
        const attempt = view.attempt ?? task.attempt;
        const place = view.place?.attempt === attempt ? view.place : undefined;
        return { ...view, attempt, place, rank: index === 0 ? rank : view.rank };
      }),
    [chosen, rank, task.attempt],
  );
  const [first = { id: 0, rank, attempt: task.attempt }] = views;
  const applied = useAppliedFilter(filter);
  const problem = useExpressionProblem(taskId, first, applied);

  const change = useCallback(
    (id: number, next: Partial<LogView>) => {
      setChosen((all) => all.map((view) => (view.id === id ? { ...view, ...next } : view)));
      if (id === first.id && next.rank !== undefined) onRank(next.rank);
    },
    [first.id, onRank],
  );
  const close = (id: number) => {
    const left = views.filter((view) => view.id !== id);
    setChosen((all) => all.filter((view) => view.id !== id));
    if (left[0]) onRank(left[0].rank);
  };
  const add = () => {
    const shown = new Set(views.map((view) => view.rank));
    const next = task.ranks.find((each) => !shown.has(each.rank))?.rank ?? 0;
    setChosen([
      ...chosen,
      { id: Math.max(...chosen.map(({ id }) => id)) + 1, rank: next, attempt: chosen[0]?.attempt },
    ]);
  };
  const showError = useCallback(async () => {
    setLooking(true);
    try {
      const { found, complete, windowBytes } = await findFirstError(taskId, first.attempt);
      const size = formatBytes(windowBytes);
      if (!found) {
        toast.success(t(complete ? "logs.noError" : "logs.noErrorSeen", { size }));
        return;
      }
      if (!complete) toast.success(t("logs.perhapsEarlier", { size }));
      setFilter(NO_FILTER);
      const place = { rank: found.rank, offset: found.offset, attempt: first.attempt };
      const existing = views.find((view) => view.rank === place.rank && view.attempt === place.attempt) ?? first;
      change(existing.id, { place, rank: place.rank });
    } catch (error) {
      toastError(t, error);
    } finally {
      setLooking(false);
    }
  }, [taskId, first, views, change, t]);
  const goTo = async (iso: string) => {
    try {
      const places = await Promise.all(views.map((view) => findFirstLineAfter(taskId, view.attempt, view.rank, iso)));
      if (!places.some(Boolean)) {
        toast.error(t("logs.nothingAfter"));
        return;
      }
      setFilter(NO_FILTER);
      views.forEach(({ id, attempt }, index) => {
        const place = places[index];
        change(id, { place: place && { rank: place.rank, offset: place.offset, attempt } });
      });
    } catch (error) {
      toastError(t, error);
    }
  };
  usePageCommands(
    useMemo(
      () => [{ id: "first-error", label: t("logs.firstError"), also: "error", keys: "e", run: showError }],
      [t, showError],
    ),
  );
  const beside = views.length > 1;
  return (
    <div className="space-y-3">
      <Toolbar
        filter={filter}
        onFilter={setFilter}
        problem={problem}
        withTime={times === "on"}
        onWithTime={(on) => rememberTimes(on ? "on" : null)}
        begun={task.attempts.find(({ number }) => number === first.attempt)?.createdAt ?? task.createdAt}
        onTime={(iso) => void goTo(iso)}
        onError={() => void showError()}
        lookingForError={looking}
        linked={beside ? linked : undefined}
        onLinked={setLinked}
        onAdd={views.length < MAX_LOGS ? add : undefined}
      />
      <div className={cx("grid gap-3", beside && "lg:grid-cols-2")}>
        {views.map((view, index) => (
          <LogPane
            key={view.id}
            task={task}
            view={view}
            onView={(next) => change(view.id, next)}
            filter={applied}
            withTime={times === "on"}
            beside={beside}
            polls={index > 0}
            together={beside && linked ? together : undefined}
            onShow={({ rank, offset }) => {
              setFilter(NO_FILTER);
              change(view.id, { place: { rank, offset, attempt: view.attempt } });
            }}
            onClose={beside ? () => close(view.id) : undefined}
          />
        ))}
      </div>
    </div>
  );
}

/** Returns the filter; one that the platform applies only after a pause in typing. */
function useAppliedFilter(filter: LogFilter): LogFilter {
  const settled = useDebounced(filter, TYPING_MS);
  return needsServerSearch(filter) && needsServerSearch(settled) ? settled : filter;
}

/** Returns the platform's error about the expression. */
function useExpressionProblem(id: string, { attempt, rank }: LogView, filter: LogFilter): string | undefined {
  const { error } = useQuery({ ...logSearchQuery(id, attempt, rank, filter, false), enabled: false });
  return isExpressionInvalid(error) ? (error.problems[0]?.message ?? error.message) : undefined;
}

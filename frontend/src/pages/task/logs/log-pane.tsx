import { ArrowDownToLine, Download, X } from "lucide-react";
import { type KeyboardEvent, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { type LogFilter, isExpressionInvalid, type LogPosition } from "@/api/log-search";
import { buildLogDownloadUrl, type RankChoice } from "@/api/logs";
import type { Task } from "@/api/types";
import { cx } from "@/lib/cx";
import { formatInteger } from "@/lib/format";
import { moveRovingFocus } from "@/lib/roving-focus";
import { Button, ButtonAnchor } from "@/ui/button";
import { LoadError, Loading } from "@/ui/errors";
import { VirtualList, type VirtualListHandle } from "@/ui/virtual-list";
import { useMatchFinder } from "./match-finder";
import { LogRow } from "./log-row";
import { findIndexAt, getTimeAt, type ScrollSync } from "./log-times";
import { useLog } from "./use-log";

/** One of the open logs. */
export interface LogView {
  id: number;
  rank: RankChoice;
  attempt: number;
  /** The line to scroll to. */
  place?: (LogPosition & { attempt: number }) | undefined;
}

interface PaneProps {
  task: Task;
  view: LogView;
  onView: (change: Partial<LogView>) => void;
  filter: LogFilter;
  withTime: boolean;
  /** Next to other logs, and therefore lower. */
  beside: boolean;
  polls: boolean;
  together: ScrollSync | undefined;
  /** Shows a line without the filter. */
  onShow: (place: LogPosition) => void;
  onClose: (() => void) | undefined;
}

export function LogPane(props: PaneProps) {
  const { task, view, onView, filter, withTime, beside, polls, together, onShow, onClose } = props;
  const { t } = useTranslation();
  const { id, rank, attempt, place } = view;
  const [follow, setFollow] = useState(true);
  const log = useLog({ task, attempt, rank, filter, place, polls });
  const { lines, index } = log;
  const marker = useMatchFinder(log.narrowed && filter.regex ? filter.search : "");
  const control = useRef<VirtualListHandle>(null);
  const reached = useRef<LogPosition>(undefined);
  useEffect(() => {
    if (index === -1 || reached.current === place) return;
    reached.current = place;
    together?.lead(id);
    control.current?.scrollTo(index, "center");
  }, [index, place, together, id]);
  useEffect(
    () =>
      together?.join(id, (time) => {
        const at = findIndexAt(lines, time);
        if (at !== undefined) control.current?.scrollTo(at, "start");
      }),
    [together, id, lines],
  );
  const lead = () => together?.lead(id);
  const show = log.narrowed ? onShow : undefined;
  const onKeyDown = (event: KeyboardEvent<HTMLElement>) => {
    lead();
    if (event.key === "Enter" && (event.target as Element).getAttribute("role") === "group") {
      event.preventDefault();
      event.currentTarget.querySelector<HTMLElement>("[data-rove]")?.focus();
    } else moveRovingFocus(event);
  };
  const refused = isExpressionInvalid(log.error);
  const following = follow && !place && !log.narrowed;
  const closing = rank === "all" ? t("logs.closeAll") : t("logs.close", { rank });
  const short = beside ? "sr-only" : "max-sm:sr-only";
  return (
    <section
      aria-label={rank === "all" ? t("logs.allRanks") : t("task.rank", { rank })}
      className="min-w-0 space-y-2"
      onPointerDown={lead}
      onWheel={lead}
      onTouchMove={lead}
      onKeyDown={onKeyDown}
    >
      <div className="flex flex-wrap items-center gap-2">
        <Choices task={task} view={view} onView={onView} />
        <span role="status" className="text-sm text-muted tabular-nums">
          {!refused && t(log.narrowed ? "logs.matches" : "logs.lines", { count: lines.length })}
          {log.searching && ` · ${t("logs.searching")}`}
        </span>
        <div className="ml-auto flex gap-2">
          <Button
            aria-pressed={following}
            look={following ? "primary" : "secondary"}
            disabled={log.narrowed}
            title={t("logs.follow")}
            onClick={() => {
              setFollow(!following);
              onView({ place: undefined });
            }}
          >
            <ArrowDownToLine />
            <span className={short}>{t("logs.follow")}</span>
          </Button>
          <ButtonAnchor title={t("logs.download")} href={buildLogDownloadUrl(task.taskId, attempt, rank)} download>
            <Download />
            <span className={short}>{t("logs.download")}</span>
          </ButtonAnchor>
          {onClose && (
            <Button look="ghost" className="px-2" aria-label={closing} title={closing} onClick={onClose}>
              <X />
            </Button>
          )}
        </div>
      </div>
      {rank !== "all" && task.attempts.find(({ number }) => number === attempt)?.failedRank === rank && (
        <p className="text-sm text-muted">{t("logs.failedFirst", { rank })}</p>
      )}
      {log.error && !refused ? <LoadError error={log.error} retry={log.retry} /> : null}
      {log.away ? (
        <p className="text-sm text-muted">
          {t("logs.away")}{" "}
          <button
            type="button"
            className="font-medium text-accent-ink hover:underline"
            onClick={() => onView({ place: undefined })}
          >
            {t("logs.newest")}
          </button>
        </p>
      ) : (
        log.cut && <p className="text-sm text-muted">{t("logs.cut", { lines: formatInteger(lines.length) })}</p>
      )}
      {log.pending && !refused ? (
        <Loading />
      ) : lines.length === 0 ? (
        <p className="rounded-lg border bg-sunken px-3 py-10 text-center text-sm text-muted">
          {t(
            refused
              ? "logs.notSearched"
              : log.searching
                ? "logs.searching"
                : log.narrowed
                  ? "logs.noMatch"
                  : "logs.empty",
          )}
        </p>
      ) : (
        <VirtualList
          key={`${log.narrowed} ${log.away}`}
          control={control}
          count={lines.length}
          height={20}
          label={t("logs.label")}
          follow={following}
          onFollow={setFollow}
          onTop={(top) => together?.moved(id, getTimeAt(lines, top))}
          className={cx(
            "overflow-auto rounded-lg border bg-sunken py-2 font-mono text-xs leading-5",
            beside ? "h-80" : "h-112",
          )}
        >
          {(at) => (
            <LogRow
              line={lines[at]}
              withRank={rank === "all"}
              withTime={withTime}
              chosen={at === index}
              needle={log.needle}
              marker={marker}
              onShow={show}
            />
          )}
        </VirtualList>
      )}
    </section>
  );
}

function Choices({ task, view: { rank, attempt }, onView }: Pick<PaneProps, "task" | "view" | "onView">) {
  const { t } = useTranslation();
  const change = (next: Partial<LogView>) => onView({ ...next, place: undefined });
  return (
    <>
      <select
        aria-label={t("logs.rank")}
        className="control w-auto max-w-full max-sm:max-w-32"
        value={rank}
        onChange={({ target }) => change({ rank: target.value === "all" ? "all" : Number(target.value) })}
      >
        <option value="all">{t("logs.allRanks")}</option>
        {task.ranks.map((each) => (
          <option key={each.rank} value={each.rank}>
            {t("task.rank", { rank: each.rank })} · {task.nodes.find((node) => node.nodeRank === each.nodeRank)?.name}
          </option>
        ))}
      </select>
      {task.attempts.length > 1 && (
        <select
          aria-label={t("logs.attempt")}
          className="control w-auto"
          value={attempt}
          onChange={({ target }) => change({ attempt: Number(target.value) })}
        >
          {task.attempts.map(({ number }) => (
            <option key={number} value={number}>
              {t("task.attempt", { number })}
            </option>
          ))}
        </select>
      )}
    </>
  );
}

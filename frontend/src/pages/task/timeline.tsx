import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { eventsQuery } from "@/api/tasks";
import type { Attempt, Status, Task } from "@/api/types";
import { cx } from "@/lib/cx";
import { formatTime, formatDateTime, formatDuration, getSecondsBetween } from "@/lib/format";
import { useNow } from "@/lib/hooks";
import { Card } from "@/ui/card";
import { type Phase, type PhaseInterval, buildPhases } from "./phases";

const COLOR: Record<Status, string> = {
  initializing: "bg-info",
  queued: "bg-warn",
  starting: "bg-info",
  running: "bg-accent-line",
  stopping: "bg-warn",
  succeeded: "bg-ok",
  failed: "bg-bad",
  stopped: "bg-muted",
};

/** Phases of each attempt with their duration, newest first. */
export function Timeline({ task }: { task: Task }) {
  const { t } = useTranslation();
  const now = useNow(!task.endedAt);
  const events = useQuery(eventsQuery(task.taskId));
  if (!events.data) return null;
  return (
    <Card title={t("task.timeline")}>
      <ol className="space-y-4">
        {buildPhases(task, events.data)
          .reverse()
          .map((stretch) => (
            <PhaseItem
              key={stretch.attempt}
              stretch={stretch}
              attempt={task.attempts.find(({ number }) => number === stretch.attempt)}
              now={now}
            />
          ))}
      </ol>
    </Card>
  );
}

function PhaseItem({ stretch, attempt, now }: { stretch: PhaseInterval; attempt: Attempt | undefined; now: number }) {
  const { t } = useTranslation();
  const begun = stretch.phases[0]?.from ?? "";
  const going = stretch.phases.some(({ to }) => to === null);
  return (
    <li className="relative border-l-2 pl-4 text-sm">
      <span
        aria-hidden
        className={cx(
          "absolute top-1 -left-[7px] size-3 rounded-full border-2 border-surface",
          going ? "bg-accent-line" : "bg-muted",
        )}
      />
      <p className="flex flex-wrap items-baseline justify-between gap-x-2">
        <span className="font-medium">
          {attempt ? t("task.attempt", { number: attempt.number }) : t("task.beforeAttempt")}
        </span>
        <time dateTime={begun} title={formatDateTime(begun)} className="text-muted tabular-nums">
          {formatTime(begun)}
        </time>
      </p>
      {attempt && <p className="break-words">{attempt.outcome ? attempt.outcome.message : t("task.ongoing")}</p>}
      {attempt?.resumeFrom && (
        <p className="break-all text-muted">
          {attempt.resumeFrom === "auto"
            ? t("task.fromNewest")
            : t("task.from", { path: attempt.resumeFrom.split("/").at(-1) ?? "" })}
        </p>
      )}
      <Phases phases={stretch.phases} now={now} />
    </li>
  );
}

/** A bar of the phases' shares, with a legend. */
function Phases({ phases, now }: { phases: Phase[]; now: number }) {
  const { t } = useTranslation();
  const parts = phases.map((phase) => ({ ...phase, seconds: getSecondsBetween(phase.from, phase.to ?? now) }));
  return (
    <>
      <div aria-hidden className="mt-1.5 flex h-1.5 gap-px overflow-hidden rounded-full bg-sunken">
        {parts.map(({ from, state, seconds }) => (
          <span key={from} className={cx("min-w-1", COLOR[state])} style={{ flexGrow: Math.max(seconds, 0.1) }} />
        ))}
      </div>
      <ul className="mt-1.5 flex flex-wrap gap-x-3 text-muted">
        {parts.map(({ from, to, state, seconds }) => (
          <li key={from} className="flex items-center gap-1.5 whitespace-nowrap tabular-nums">
            <span aria-hidden className={cx("size-2 rounded-full", COLOR[state])} />
            {t(`status.${state}`)} {to && seconds < 1 ? t("task.underASecond") : formatDuration(t, seconds)}
          </li>
        ))}
      </ul>
    </>
  );
}

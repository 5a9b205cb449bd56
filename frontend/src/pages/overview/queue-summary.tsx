import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { Overview } from "@/api/types";
import { formatDuration, formatInteger, getSecondsBetween } from "@/lib/format";
import { Card } from "@/ui/card";

type LongestWaiting = Overview["queue"];

/** The queue: ages, reasons, and the tasks that have waited longest. */
export function QueueSummary({ overview: { queue, at } }: { overview: Overview }) {
  const { t } = useTranslation();
  return (
    <Card
      title={t("overview.queue")}
      aside={
        <Link to="/queue" className="text-sm text-accent-ink hover:underline">
          {t("overview.all", { count: queue.total })}
        </Link>
      }
    >
      {queue.total === 0 ? (
        <p className="text-sm text-muted">{t("queue.empty")}</p>
      ) : (
        <div className="space-y-4">
          <AgeHistogram ages={queue.ages} />
          <ul className="space-y-1.5 text-sm">
            {queue.reasons.map(({ cause, message, count }) => (
              <li key={cause} className="flex items-baseline gap-3">
                <span className="w-10 shrink-0 text-right font-medium tabular-nums">{formatInteger(count)}</span>
                {cause ? (
                  <Link
                    to={`/training?status=queued&status=initializing&cause=${encodeURIComponent(cause)}`}
                    state={{ cause: message }}
                    className="min-w-0 truncate text-muted hover:text-accent-ink hover:underline"
                    title={message}
                  >
                    {message}
                  </Link>
                ) : (
                  <span className="min-w-0 truncate text-muted">{t("overview.undecided")}</span>
                )}
              </li>
            ))}
            {queue.reasonsLeftOut > 0 && (
              <li className="pl-13 text-muted">{t("overview.furtherReasons", { count: queue.reasonsLeftOut })}</li>
            )}
          </ul>
          <ul aria-label={t("overview.oldest")} className="divide-y border-t text-sm">
            {queue.oldest.map((task) => (
              <li key={task.taskId} className="flex items-baseline justify-between gap-3 py-1.5">
                <span className="min-w-0 truncate">
                  <Link to={`/training/${task.taskId}`} className="font-medium hover:text-accent-ink hover:underline">
                    {task.name}
                  </Link>
                  <span className="ml-2 text-xs text-muted">
                    {task.owner} · {t("counted.gpus", { count: task.gpus })}
                  </span>
                </span>
                <span className="shrink-0 text-muted tabular-nums">
                  {formatDuration(t, getSecondsBetween(task.since, at))}
                </span>
              </li>
            ))}
          </ul>
        </div>
      )}
    </Card>
  );
}

function AgeHistogram({ ages }: { ages: LongestWaiting["ages"] }) {
  const { t } = useTranslation();
  const most = Math.max(...ages.map(({ count }) => count), 1);
  const name = (index: number) => {
    const upTo = ages[index]?.upTo;
    const from = ages[index - 1]?.upTo;
    return upTo ? `< ${formatDuration(t, upTo)}` : `≥ ${formatDuration(t, from ?? 0)}`;
  };
  return (
    <ol className="grid grid-cols-6 gap-1.5 text-center text-xs">
      {ages.map(({ count }, index) => (
        <li key={index} className="flex min-w-0 flex-col justify-end">
          <span className="font-medium tabular-nums">{formatInteger(count)}</span>
          <span className="flex h-14 items-end rounded-sm bg-sunken">
            <span
              className={index < 3 ? "w-full rounded-sm bg-accent" : "w-full rounded-sm bg-warn"}
              style={{ height: `${(count / most) * 100}%` }}
            />
          </span>
          <span className="mt-1 truncate text-muted">{name(index)}</span>
        </li>
      ))}
    </ol>
  );
}

import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { Overview } from "@/api/types";
import { cx } from "@/lib/cx";
import { formatDuration, formatInteger, getSecondsBetween } from "@/lib/format";
import { GpuBar } from "./gpu-bar";
import { STATE_COLORS, formatShare, GPU_STATES } from "./gpu-states";

export function Figures({ overview }: { overview: Overview }) {
  const { t } = useTranslation();
  const { gpus, tasks, queue, failures, goodput, at } = overview;
  return (
    <section aria-label={t("overview.now")} className="overflow-hidden rounded-xl border bg-surface shadow-xs">
      <dl className="grid grid-cols-2 gap-px bg-line *:bg-surface *:p-4 md:grid-cols-4 xl:grid-cols-8">
        <Figure name={t("overview.gpus")} value={formatInteger(gpus.total)} to="/environments" />
        <Figure
          name={t("overview.held")}
          value={formatInteger(gpus.held)}
          hint={formatShare(gpus.held, gpus.total)}
          to="/queue/timeline"
        />
        <Figure
          name={t("overview.gpu.busy")}
          value={formatInteger(gpus.busy)}
          hint={formatShare(gpus.busy, gpus.held)}
        />
        <Figure
          name={t("overview.heldIdle")}
          value={formatInteger(gpus.idle)}
          hint={formatShare(gpus.idle, gpus.held)}
          tone={gpus.idle > 0 ? "text-warn-ink" : undefined}
          to="/overview?kind=gpus_idle"
        />
        <Figure name={t("status.running")} value={formatInteger(tasks.running)} to="/training?status=running" />
        <Figure
          name={t("overview.waiting")}
          value={formatInteger(queue.total)}
          hint={queue.since && t("overview.longest", { time: formatDuration(t, getSecondsBetween(queue.since, at)) })}
          to="/queue"
        />
        <Figure
          name={t("overview.failedWeek")}
          value={formatInteger(failures.attempts)}
          hint={t("overview.failedPermanently", { count: failures.tasks })}
          tone={failures.attempts > 0 ? "text-bad-ink" : undefined}
          to="/training?status=failed"
        />
        <Figure
          name={t("usage.goodput")}
          value={goodput.goodput === null ? "–" : formatShare(goodput.goodput, 1)}
          hint={t("overview.week")}
          to="/usage"
        />
      </dl>
      <div className="space-y-2 border-t p-4">
        <GpuBar tally={gpus} name={t("overview.gpus")} thick />
        <ul className="flex flex-wrap gap-x-4 gap-y-1 text-xs text-muted">
          {GPU_STATES.map((state) => (
            <li key={state} title={t(`overview.gpuHint.${state}`)} className="flex items-center gap-1.5">
              <span aria-hidden className={cx("size-2.5 rounded-sm", STATE_COLORS[state])} />
              {t(`overview.gpu.${state}`)}
              <span className="font-medium text-ink tabular-nums">{formatInteger(gpus[state])}</span>
            </li>
          ))}
        </ul>
      </div>
    </section>
  );
}

export interface FigureProps {
  name: string;
  value: string;
  hint?: ReactNode;
  tone?: string | undefined;
  to?: string;
}

/** A number with a link to its details. */
export function Figure({ name, value, hint, tone, to }: FigureProps) {
  const number = <span className={cx("text-2xl font-semibold tracking-tight tabular-nums", tone)}>{value}</span>;
  return (
    <div className="min-w-0">
      <dt className="truncate text-xs text-muted">{name}</dt>
      <dd className="mt-0.5 flex flex-wrap items-baseline gap-x-2">
        {to ? (
          <Link to={to} aria-label={`${name}: ${value}`} className="hover:underline">
            {number}
          </Link>
        ) : (
          number
        )}
        {hint && <span className="text-xs text-muted tabular-nums">{hint}</span>}
      </dd>
    </div>
  );
}

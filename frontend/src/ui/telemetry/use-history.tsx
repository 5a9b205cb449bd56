import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { MachineUse } from "@/api/types";
import { cx } from "@/lib/cx";
import { formatShortTime } from "@/lib/format";
import { useChartCursor } from "./use-chart-cursor";
import { type Axis, LEFT, RIGHT } from "./time-chart";

/** Entries listed, the newest; the axis shows all. */
const MAX_LISTED = 6;

/** The tasks that used the machine, on the axis of the charts. */
export function UseHistory({ tasks, axis }: { tasks: MachineUse[]; axis: Axis }) {
  const { t } = useTranslation();
  const [pointed, setPointed] = useState<string>();
  const { from, to, cursor } = axis;
  const share = (at: number) => Math.min(1, Math.max(0, (at - from) / (to - from)));
  const seconds = (iso: string | null) => (iso ? new Date(iso).getTime() / 1000 : to);
  const at = useChartCursor(cursor, (at) => (at === null ? null : share(at)));
  const all = tasks.map((task) => ({
    task,
    key: `${task.id ?? task.name} ${task.from}`,
    left: share(seconds(task.from)),
    right: share(seconds(task.to)),
  }));
  const now = at === null ? undefined : all.find(({ left, right }) => left <= at && at <= right)?.key;
  return (
    <section aria-label={t("machines.tasks")} className="min-w-0">
      <h3 className="h-5 text-sm">{t("machines.tasks")}</h3>
      <div
        className="relative my-1 h-6 overflow-hidden rounded bg-sunken"
        style={{ marginLeft: LEFT, marginRight: RIGHT }}
      >
        {all.map(({ task, key, left, right }) => (
          <span
            key={key}
            title={formatTaskName(task.name || t("machines.others"), task, t("machines.now"))}
            onPointerEnter={() => setPointed(key)}
            onPointerLeave={() => setPointed(undefined)}
            className={cx(
              "absolute inset-y-0.5 min-w-0.5 rounded-xs",
              pointed === key || now === key ? "bg-accent" : task.id ? "bg-accent-line" : "bg-line-strong",
            )}
            style={{ left: `${100 * left}%`, width: `${100 * (right - left)}%` }}
          />
        ))}
        {at !== null && <span className="absolute inset-y-0 border-l border-ink" style={{ left: `${100 * at}%` }} />}
      </div>
      {all.length === 0 ? (
        <p className="text-sm text-muted">{t("machines.nobody")}</p>
      ) : (
        <ol className="text-xs">
          {all
            .slice(-MAX_LISTED)
            .reverse()
            .map(({ task, key }) => (
              <li
                key={key}
                onPointerEnter={() => setPointed(key)}
                onPointerLeave={() => setPointed(undefined)}
                className={cx(
                  "flex h-6 items-center gap-2 rounded px-1.5",
                  (pointed === key || now === key) && "bg-accent-soft",
                )}
              >
                {task.id ? (
                  <Link to={`/training/${task.id}`} className="truncate font-medium text-accent-ink hover:underline">
                    {task.name}
                  </Link>
                ) : (
                  <span className="truncate text-muted">{task.name || t("machines.others")}</span>
                )}
                <span className="ml-auto shrink-0 text-muted tabular-nums">
                  {formatShortTime(task.from)} – {task.to ? formatShortTime(task.to) : t("machines.now")}
                </span>
              </li>
            ))}
          {all.length > MAX_LISTED && (
            <li className="px-1.5 py-1 text-muted">{t("machines.earlier", { count: all.length - MAX_LISTED })}</li>
          )}
        </ol>
      )}
    </section>
  );
}

const formatTaskName = (name: string, { from, to }: MachineUse, now: string) =>
  `${name} · ${formatShortTime(from)} – ${to ? formatShortTime(to) : now}`;

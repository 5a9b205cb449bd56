import { type ReactNode, useMemo } from "react";
import { useTranslation } from "react-i18next";
import { isFinished } from "@/api/tasks";
import type { Metric, Task } from "@/api/types";
import {
  formatDateTime,
  formatDuration,
  formatInteger,
  formatNumber,
  formatTimeLeft,
  getSecondsBetween,
} from "@/lib/format";
import { useNow } from "@/lib/hooks";
import { Card } from "@/ui/card";
import { ProgressBar } from "@/ui/progress-bar";
import { buildSeries, findLossName, listMetricNames } from "./series";

function getNewestPoint(metrics: Metric[], name: string): number | undefined {
  return metrics.findLast((metric) => metric.values[name] != null)?.values[name] ?? undefined;
}

export function TaskProgress({ task, metrics }: { task: Task; metrics: Metric[] }) {
  const { t } = useTranslation();
  const over = isFinished(task);
  const now = useNow(!over);
  const step = Math.max(task.step ?? 0, metrics.at(-1)?.step ?? 0); // metrics may lack the newest step
  const name = useMemo(() => findLossName(listMetricNames(metrics)) ?? "loss", [metrics]);
  const loss = getNewestPoint(metrics, name) ?? task.loss;
  const gap = useMemo(() => buildSeries(metrics, name).notFinite.at(-1), [metrics, name]);
  const nan = gap?.open
    ? t("task.nanSince", { step: formatInteger(gap.from) })
    : task.lossNotFinite
      ? "NaN"
      : undefined;
  const throughput = getNewestPoint(metrics, "tokens_per_s");
  const left = over ? undefined : formatTimeLeft(t, task.estimatedEndAt, now);
  const share = task.totalSteps ? Math.min(1, step / task.totalSteps) : undefined;
  return (
    <Card>
      <dl className="grid grid-cols-2 gap-x-4 gap-y-3 sm:grid-cols-3 lg:grid-cols-5">
        <Figure label={t("task.step")}>
          {formatInteger(step)}
          {task.totalSteps != null && <span className="text-base text-muted"> / {formatInteger(task.totalSteps)}</span>}
        </Figure>
        <Figure label={t("task.loss")}>
          {nan ? <span className="text-bad-ink">{nan}</span> : loss == null ? "–" : formatNumber(loss)}
        </Figure>
        <Figure label={t("task.throughput")}>
          {throughput === undefined ? "–" : t("task.tokensPerSecond", { value: formatInteger(Math.round(throughput)) })}
        </Figure>
        <Figure label={t("task.elapsed")}>
          {task.startedAt ? formatDuration(t, getSecondsBetween(task.startedAt, task.endedAt ?? now)) : "–"}
        </Figure>
        {left !== undefined && task.estimatedEndAt && (
          <Figure label={t("task.remaining")}>
            <span title={t("task.estimatedEnd", { time: formatDateTime(task.estimatedEndAt) })}>{left}</span>
          </Figure>
        )}
      </dl>
      {share !== undefined && (
        <div className="mt-4">
          <ProgressBar label={t("task.progress")} value={share} />
        </div>
      )}
    </Card>
  );
}

function Figure({ label, children }: { label: string; children: ReactNode }) {
  return (
    <div className="min-w-0">
      <dt className="text-sm text-muted">{label}</dt>
      <dd className="text-lg font-semibold tabular-nums">{children}</dd>
    </div>
  );
}

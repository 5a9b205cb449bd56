import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { lastLineQuery } from "@/api/logs";
import { metricsQuery } from "@/api/tasks";
import type { Task } from "@/api/types";
import { cx } from "@/lib/cx";
import { formatNumber, formatInteger, formatMeasurement } from "@/lib/format";
import { useDebounced } from "@/lib/hooks";
import { Button } from "@/ui/button";
import { formatMetric, getAppearance, getAppearanceText } from "./rank-appearance";
import { type RankMetric, getMetricValue, type RankSnapshot } from "./rank-metrics";

interface RankInspectorProps {
  task: Task;
  seen: RankSnapshot;
  /** Metrics that any rank has, so that the layout stays when another is shown. */
  amounts: RankMetric[];
  onRead: (rank: number) => void;
  onCharts: (rank: number) => void;
}

/** All details of one rank. */
export function RankInspector({ task, seen, amounts, onRead, onCharts }: RankInspectorProps) {
  const { t } = useTranslation();
  const { rank, node, pulse, use } = seen;
  const metrics = useQuery({ ...metricsQuery(task.taskId), enabled: false }).data;
  const loss = metrics?.findLast(({ rank: of, values }) => of === rank.rank && values.loss !== undefined)?.values.loss;
  const look = getAppearance(rank);
  const device = rank.device == null ? t("task.cpu") : t("task.gpu", { device: rank.device });
  const step = pulse?.step ?? metrics?.findLast((metric) => metric.rank === rank.rank)?.step;
  const values: [label: string, value: string][] = amounts.map((amount) => {
    const value = getMetricValue(amount, seen);
    const text = value == null ? "–" : formatMetric(t, amount, value);
    const total = amount === "gpuMemory" && value != null && use?.gpuMemoryTotal;
    return [t(`heat.measure.${amount}`), total ? `${text} (${Math.round((value / total) * 100)}%)` : text];
  });
  if (pulse?.stepSeconds != null) {
    values.push([t("heat.stepTime"), t("rankProgress.seconds", { seconds: formatMeasurement(pulse.stepSeconds) })]);
  }
  if (pulse?.waitingShare != null) values.push([t("rankProgress.waiting"), `${Math.round(pulse.waitingShare * 100)}%`]);
  return (
    <section aria-label={t("heat.inspector")} className="min-w-0 text-sm">
      <p className="font-medium">
        <span className={cx(look === "failed" && "text-bad-ink", look === "after" && "text-warn-ink")}>
          {t("task.rank", { rank: rank.rank })} · {getAppearanceText(t, look)}
        </span>
        {pulse && rank.state === "running" && ` · ${t(`rankProgress.phases.${pulse.phase}`)}`}
        {step != null && ` · ${t("task.atStep", { step: formatInteger(step) })}`}
        {loss !== undefined && ` · ${t("task.loss")} ${loss === null ? "NaN" : formatNumber(loss)}`}
      </p>
      <p className="break-words text-muted">
        {t("task.rankFacts", { node: node?.name ?? "", local: rank.localRank, device })}
        {rank.pid != null && ` · ${t("task.pid", { pid: rank.pid })}`}
        {rank.exitCode != null && ` · ${t("task.exitCode", { code: rank.exitCode })}`}
      </p>
      {values.length > 0 && (
        <dl className="mt-1.5 grid grid-cols-[repeat(auto-fill,minmax(8.5rem,1fr))] gap-x-4 gap-y-0.5 tabular-nums">
          {values.map(([label, value]) => (
            <div key={label} className="flex justify-between gap-2">
              <dt className="truncate text-muted" title={label}>
                {label}
              </dt>
              <dd className="whitespace-nowrap">{value}</dd>
            </div>
          ))}
        </dl>
      )}
      {task.attempt > 0 && (
        <>
          <LastLine task={task} rank={rank.rank} />
          <div className="mt-2 flex flex-wrap gap-2">
            <Button size="sm" onClick={() => onRead(rank.rank)}>
              {t("heat.read")}
            </Button>
            <Button size="sm" onClick={() => onCharts(rank.rank)}>
              {t("heat.charts")}
            </Button>
          </div>
        </>
      )}
    </section>
  );
}

/** The newest log line, requested once the pointer rests. */
function LastLine({ task, rank }: { task: Task; rank: number }) {
  const settled = useDebounced(rank, 150);
  const { data } = useQuery(lastLineQuery(task.taskId, task.attempt, settled, !task.endedAt));
  return (
    <p className="mt-1 line-clamp-1 min-h-4 sm:line-clamp-2 sm:min-h-8 font-mono text-xs break-all text-muted">
      {settled === rank ? (data ?? "") : ""}
    </p>
  );
}

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { taskUsageQuery } from "@/api/sharing";
import { isFinished } from "@/api/tasks";
import type { Task } from "@/api/types";
import { cx } from "@/lib/cx";
import { formatDuration, formatNumber, formatGpuTime, formatMeasurement } from "@/lib/format";
import { Card } from "@/ui/card";
import { DefinitionList } from "@/ui/table";

const PARTS = ["training", "starting", "saving", "redone", "lost", "hung", "idle"] as const;
const COLOUR = {
  training: "bg-ok",
  starting: "bg-info",
  saving: "bg-accent",
  redone: "bg-warn",
  lost: "bg-bad",
  hung: "bg-bad-ink",
  idle: "bg-line-strong",
} as const;

/** How the task's held time was spent, and its cost. */
export default function TaskUsage({ task }: { task: Task }) {
  const { t } = useTranslation();
  const usage = useQuery(taskUsageQuery(task.taskId, !isFinished(task))).data;
  if (!usage || usage.heldSeconds === 0) return null;
  const facts: [string, ReactNode][] = [
    [t("task.usage.goodput"), usage.goodput == null ? "–" : `${Math.round(usage.goodput * 100)} %`],
    [t("task.usage.ettr"), usage.ettr == null ? "–" : `${Math.round(usage.ettr * 100)} %`],
    [t("task.usage.queued"), formatDuration(t, usage.queuedSeconds)],
    [t("task.usage.held"), formatDuration(t, usage.heldSeconds)],
    [t("task.usage.gpuHours"), formatGpuTime(t, usage.gpuHours)],
  ];
  if (usage.cost != null) facts.push([t("task.usage.cost"), `${formatNumber(usage.cost)} ${usage.currency}`]);
  const flops = usage.modelFlops;
  if (flops?.utilisation != null && flops.peakTflops != null) {
    const of = t("task.usage.mfuOf", {
      tflops: formatMeasurement(flops.tflops),
      peak: formatMeasurement(flops.peakTflops),
    });
    facts.push([t("task.usage.mfu"), <span title={of}>{`${(flops.utilisation * 100).toFixed(1)} %`}</span>]);
  }
  const shares = PARTS.map((part) => ({ part, seconds: usage[part] })).filter(({ seconds }) => seconds > 0);
  const message = shares
    .map(({ part, seconds }) => `${t(`task.usage.part.${part}`)} ${formatDuration(t, seconds)}`)
    .join(", ");
  return (
    <Card title={t("task.usage.title")}>
      <div role="img" aria-label={message} className="mb-2 flex h-3 overflow-hidden rounded-full">
        {shares.map(({ part, seconds }) => (
          <span
            key={part}
            title={`${t(`task.usage.part.${part}`)} ${formatDuration(t, seconds)}`}
            className={cx("block min-w-0.5", COLOUR[part])}
            style={{ flexGrow: seconds }}
          />
        ))}
      </div>
      <ul className="mb-3 flex flex-wrap gap-x-3 gap-y-1 text-xs">
        {shares.map(({ part, seconds }) => (
          <li key={part} className="flex items-center gap-1">
            <span aria-hidden className={cx("size-2 rounded-full", COLOUR[part])} />
            {t(`task.usage.part.${part}`)} {formatDuration(t, seconds)}
          </li>
        ))}
      </ul>
      <DefinitionList facts={facts} />
    </Card>
  );
}

import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { Worker } from "@/api/types";
import { formatBytes, formatInteger } from "@/lib/format";
import { Badge, type Tone } from "@/ui/badge";

export function RankCell({ worker: { rank, localRank, nodeRank, worldSize } }: { worker: Worker }) {
  const { t } = useTranslation();
  if (rank == null) return <span className="text-muted">–</span>;
  return (
    <>
      <span className="font-medium">{rank}</span>
      {worldSize != null && <span className="text-muted"> / {worldSize}</span>}
      <div className="text-xs whitespace-nowrap text-muted">
        {t("workers.rankFacts", { local: localRank, node: nodeRank })}
      </div>
    </>
  );
}

type ProcessState = Worker["process"]["state"];
const TONE: Record<ProcessState, Tone> = { idle: "idle", starting: "info", running: "accent", exited: "idle" };

export function ProcessCell({ worker: { process } }: { worker: Worker }) {
  const { t } = useTranslation();
  const { state, pid, exitCode, taskId } = process;
  const failed = exitCode != null && exitCode !== 0;
  return (
    <>
      <Badge tone={failed ? "bad" : TONE[state]}>{t(`workers.processOf.${state}`)}</Badge>
      <div className="mt-1 text-xs text-muted">
        {exitCode != null ? t("task.exitCode", { code: exitCode }) : pid != null && t("task.pid", { pid })}
      </div>
      {taskId && (
        <Link to={`/training/${taskId}`} className="font-mono text-xs break-all text-accent-ink hover:underline">
          {taskId}
        </Link>
      )}
    </>
  );
}

const MB = 2 ** 20;

export function GpuUsageCell({ worker: { id, usage } }: { worker: Worker }) {
  const { t } = useTranslation();
  const share = usage.gpuUtilization;
  const used = usage.gpuMemoryUsedMb;
  const total = usage.gpuMemoryTotalMb;
  if (share == null && used == null) return <span className="text-muted">–</span>;
  return (
    <div className="w-32 space-y-1 text-xs text-muted tabular-nums">
      {share != null && (
        <div className="flex items-center gap-2">
          <Meter label={`${t("workers.usage")} ${id}`} value={share / 100} />
          <span className="w-9 text-right">{formatInteger(Math.round(share))}%</span>
        </div>
      )}
      {used != null && (
        <div>
          {formatBytes(used * MB)}
          {total != null && ` / ${formatBytes(total * MB)}`}
        </div>
      )}
    </div>
  );
}

function Meter({ label, value }: { label: string; value: number }) {
  return (
    <span
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(value * 100)}
      className="h-1.5 flex-1 overflow-hidden rounded-full bg-sunken"
    >
      <span className="block h-full rounded-full bg-accent" style={{ width: `${Math.min(1, value) * 100}%` }} />
    </span>
  );
}

export function HostUsageCell({ worker: { usage } }: { worker: Worker }) {
  const { t } = useTranslation();
  if (usage.cpuPercent == null && usage.memoryUsedMb == null) return "–";
  return (
    <>
      {usage.cpuPercent != null && (
        <div>{t("workers.cpuUse", { percent: formatInteger(Math.round(usage.cpuPercent)) })}</div>
      )}
      {usage.memoryUsedMb != null && (
        <div>{t("workers.memoryUse", { size: formatBytes(usage.memoryUsedMb * MB) })}</div>
      )}
    </>
  );
}

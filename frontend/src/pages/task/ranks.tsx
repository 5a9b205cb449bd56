import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { lastLineQuery, type RankChoice } from "@/api/logs";
import { metricsQuery, pulsesQuery } from "@/api/tasks";
import type { Pulse, Rank, Task, TaskNode } from "@/api/types";
import { cx } from "@/lib/cx";
import { Badge } from "@/ui/badge";
import { figure, integer } from "@/lib/format";
import { rove } from "@/lib/rove";
import { Card } from "@/ui/card";
import { Gpus } from "@/ui/gpus";
import { PulseFacts, Pulses } from "./pulses";

function look(rank: Rank): string {
  if (rank.state === "running") return "border-accent-line bg-accent-soft text-accent-ink";
  if (rank.state === "waiting") return "border-line border-dashed text-muted";
  return ENDING[rank.ending ?? "done"];
}

const ENDING: Record<NonNullable<Rank["ending"]>, string> = {
  done: "border-ok-line bg-ok-soft text-ok-ink",
  failed: "border-bad bg-bad text-white",
  after: "border-warn-line bg-warn-soft text-warn-ink",
  ended: "border-line bg-sunken text-muted",
};

/** "exited" says less than how it did. */
function useWord() {
  const { t } = useTranslation();
  return (rank: Rank) => (rank.ending ? t(`task.ending.${rank.ending}`) : t(`task.rankState.${rank.state}`));
}

interface RanksProps {
  task: Task;
  chosen: RankChoice;
  onChoose: (rank: number) => void;
}

/** One square per process, by node; below them, what is known of the one under the pointer or the focus. */
export function Ranks({ task, chosen, onChoose }: RanksProps) {
  const { t } = useTranslation();
  const word = useWord();
  const [pointed, setPointed] = useState<number>();
  const shown = task.ranks.find((rank) => rank.rank === (pointed ?? chosen));
  const node = task.nodes.find((each) => each.nodeRank === shown?.nodeRank);
  const tabStop = typeof chosen === "number" ? chosen : task.ranks[0]?.rank;
  const asked = useQuery(pulsesQuery(task)).data;
  const pulses = task.status === "running" ? asked : undefined;
  return (
    <Card title={t("task.ranks")} aside={<span className="text-sm text-muted">{task.worldSize}</span>}>
      <ul className="space-y-3" onKeyDown={rove}>
        {task.nodes.map((each) => (
          <li key={each.nodeRank}>
            <NodeLine node={each} master={each.nodeRank === 0 && task.nodes.length > 1} />
            <div className="mt-1.5 flex flex-wrap gap-1">
              {task.ranks
                .filter((rank) => rank.nodeRank === each.nodeRank)
                .map((rank) => (
                  <button
                    key={rank.rank}
                    type="button"
                    data-rove
                    tabIndex={rank.rank === tabStop ? 0 : -1}
                    aria-label={`${t("task.rank", { rank: rank.rank })}, ${word(rank)}`}
                    aria-pressed={rank.rank === chosen}
                    onClick={() => onChoose(rank.rank)}
                    onPointerEnter={() => setPointed(rank.rank)}
                    onPointerLeave={() => setPointed(undefined)}
                    onFocus={() => setPointed(rank.rank)}
                    onBlur={() => setPointed(undefined)}
                    className={cx(
                      "size-8 rounded-md border text-xs font-medium tabular-nums",
                      look(rank),
                      rank.rank === chosen && "ring-2 ring-accent-line ring-offset-1 ring-offset-surface",
                    )}
                  >
                    {rank.rank}
                  </button>
                ))}
            </div>
          </li>
        ))}
      </ul>
      <div className="mt-3 min-h-28 rounded-lg bg-sunken px-3 py-2 text-sm">
        {shown && node ? (
          <Facts task={task} rank={shown} node={node} pulse={pulses?.find((pulse) => pulse.rank === shown.rank)} />
        ) : (
          <p className="text-muted">{t("task.ranksHint")}</p>
        )}
      </div>
      {pulses && pulses.length > 0 && <Pulses pulses={pulses} chosen={chosen} onChoose={onChoose} />}
    </Card>
  );
}

function NodeLine({ node, master }: { node: TaskNode; master: boolean }) {
  const { t } = useTranslation();
  return (
    <div className="flex flex-wrap items-center gap-x-2 gap-y-1 text-sm">
      <span className="min-w-0 font-medium break-words">{node.name}</span>
      {master && <Badge tone="warn">{t("task.master")}</Badge>}
      <span className="text-muted">{node.zone}</span>
      <span className="text-muted">
        <Gpus type={node.gpuType} count={node.gpuType ? node.processes : 0} emulated={node.emulated} />
      </span>
    </div>
  );
}

interface FactsProps {
  task: Task;
  rank: Rank;
  node: TaskNode;
  pulse: Pulse | undefined;
}

function Facts({ task, rank, node, pulse }: FactsProps) {
  const { t } = useTranslation();
  const word = useWord();
  const metrics = useQuery({ ...metricsQuery(task.taskId), enabled: false }).data;
  const newest = metrics?.findLast((metric) => metric.rank === rank.rank);
  const loss = newest?.values.loss;
  const device = rank.device == null ? t("task.cpu") : t("task.gpu", { device: rank.device });
  return (
    <>
      <p className="font-medium">
        {t("task.rank", { rank: rank.rank })} · {word(rank)}
        {newest && ` · ${t("task.atStep", { step: integer(newest.step) })}`}
        {loss != null && ` · ${t("task.loss")} ${figure(loss)}`}
      </p>
      <p className="text-muted">
        {t("task.rankFacts", { node: node.name, local: rank.localRank, device })}
        {rank.pid != null && ` · ${t("task.pid", { pid: rank.pid })}`}
        {rank.exitCode != null && ` · ${t("task.exitCode", { code: rank.exitCode })}`}
      </p>
      {pulse && <PulseFacts pulse={pulse} />}
      {task.attempt > 0 && <LastLine key={rank.rank} task={task} rank={rank.rank} />}
    </>
  );
}

function LastLine({ task, rank }: { task: Task; rank: number }) {
  const { data } = useQuery(lastLineQuery(task.taskId, task.attempt, rank, !task.endedAt));
  return <p className="mt-1 line-clamp-2 min-h-8 font-mono text-xs break-all text-muted">{data ?? ""}</p>;
}

import { useState } from "react";
import { useTranslation } from "react-i18next";
import type { Environment, Preview } from "@/api/types";
import { cx } from "@/lib/cx";
import { Badge } from "@/ui/badge";
import { CodeBlock } from "@/ui/code-block";
import { VirtualList } from "@/ui/virtual-list";

const ROW_PX = 32;
const ROW =
  "grid grid-cols-[2rem_minmax(0,1fr)_9rem] items-center gap-2 px-3 text-sm sm:grid-cols-[2.5rem_minmax(0,1fr)_4.5rem_9rem]";

interface RankTableProps {
  ranks: Preview["ranks"];
  environments: ReadonlyMap<string, Environment>;
}

/** The ranks with their environment and GPU. Selecting a rank shows its variables. */
export function RankTable({ ranks, environments }: RankTableProps) {
  const { t } = useTranslation();
  const [chosen, setChosen] = useState(0);
  const shown = ranks[chosen] ?? ranks[0];
  return (
    <div className="space-y-3">
      <div
        role="table"
        aria-label={t("create.rankTable")}
        aria-rowcount={ranks.length + 1}
        className="rounded-lg border"
      >
        <div role="rowgroup">
          <div role="row" aria-rowindex={1} className={cx(ROW, "border-b py-1.5 font-medium text-muted")}>
            <span role="columnheader">{t("create.rank")}</span>
            <span role="columnheader">{t("create.node")}</span>
            <span role="columnheader" className="max-sm:hidden">
              {t("create.localRank")}
            </span>
            <span role="columnheader">{t("create.device")}</span>
          </div>
        </div>
        <VirtualList
          count={ranks.length}
          height={ROW_PX}
          role="rowgroup"
          label={t("create.rankTable")}
          className="max-h-64 overflow-auto"
        >
          {(index) => {
            const rank = ranks[index];
            if (!rank) return null;
            return (
              <div
                role="row"
                aria-rowindex={index + 2}
                className={cx(ROW, "h-full tabular-nums", rank === shown && "bg-accent-soft")}
              >
                <span role="cell">
                  <button
                    type="button"
                    aria-pressed={rank === shown}
                    aria-label={t("create.showRank", { rank: rank.rank })}
                    className="w-full rounded-md text-left font-medium text-accent-ink -outline-offset-2 hover:underline"
                    onClick={() => setChosen(index)}
                  >
                    {rank.rank}
                  </button>
                </span>
                <span role="cell" className="truncate" title={rank.environmentName}>
                  {rank.environmentName}
                </span>
                <span role="cell" className="max-sm:hidden">
                  {rank.localRank}
                </span>
                <span role="cell" className="whitespace-nowrap">
                  <Device rank={rank} environment={environments.get(rank.environmentId)} />
                </span>
              </div>
            );
          }}
        </VirtualList>
      </div>
      {shown && (
        <CodeBlock
          name={`rank-${shown.rank}.env`}
          content={Object.entries(shown.env)
            .map(([name, value]) => `${name}=${value}`)
            .join("\n")}
        />
      )}
    </div>
  );
}

/** A rank's GPU: "A100 #0", marked if it is emulated. */
function Device({ rank, environment }: { rank: Preview["ranks"][number]; environment: Environment | undefined }) {
  const { t } = useTranslation();
  const type = environment?.gpuType ?? "GPU";
  if (rank.device != null) return `${type} #${rank.device}`;
  if (!environment?.emulated || environment.gpuCount === 0) return t("task.cpu");
  return (
    <span className="inline-flex items-center gap-1.5">
      {type} #{rank.localRank}
      <Badge tone="info" title={t("gpu.emulatedHint")}>
        {t("gpu.emulated")}
      </Badge>
    </span>
  );
}

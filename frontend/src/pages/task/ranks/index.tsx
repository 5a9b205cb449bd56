import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import type { RankChoice } from "@/api/logs";
import { rankProgressQuery } from "@/api/tasks";
import { rankUsageQuery } from "@/api/telemetry";
import type { RankProgress, RankUsage, Task } from "@/api/types";
import { cx } from "@/lib/cx";
import { formatInteger } from "@/lib/format";
import { useLocalStorage } from "@/lib/use-local-storage";
import { Card } from "@/ui/card";
import { Collapsible } from "@/ui/collapsible";
import { RankProgressTable } from "../rank-progress";
import { HeatMap } from "./heat-map";
import { RankInspector } from "./rank-inspector";
import { Legend } from "./legend";
import { RANK_METRICS, getMetricValue, type ColorBy, computeScale, buildRankSnapshots } from "./rank-metrics";
import { OutlierList } from "./outlier-list";
import { findOutliers } from "./outliers";

/** With more ranks, the map does not fit beside the charts. */
export const MAX_RANKS_BESIDE = 64;

const NO_PULSES: RankProgress[] = [];
const NO_USES: RankUsage[] = [];

interface RanksProps {
  task: Task;
  chosen: RankChoice;
  /** Ranks that the diagnosis names as a cause. */
  blamed: number[];
  /** Keeps a rank in the inspector, and shows its log. */
  onPin: (rank: number) => void;
  /** Opens the rank's log, or its charts. */
  onRead: (rank: number) => void;
  onCharts: (rank: number) => void;
}

/** One cell per rank, coloured by a metric, and the details of the selected one. */
export function Ranks({ task, chosen, blamed: named, onPin, onRead, onCharts }: RanksProps) {
  const { t } = useTranslation();
  const running = task.status === "running";
  const request = useQuery(rankProgressQuery(task)).data ?? NO_PULSES;
  const reported = useQuery(rankUsageQuery(task)).data;
  const pulses = running ? request : NO_PULSES;
  const uses = (running && reported?.ranks) || NO_USES;
  const { ranks, nodes } = task;
  const all = useMemo(() => buildRankSnapshots({ ranks, nodes }, pulses, uses), [ranks, nodes, pulses, uses]);
  const amounts = useMemo(
    () => RANK_METRICS.filter((amount) => all.some((seen) => getMetricValue(amount, seen) != null)),
    [all],
  );
  const [wanted, remember] = useLocalStorage("ranks");
  const measure: ColorBy = amounts.find((amount) => amount === wanted) ?? "state";
  const scale = useMemo(() => (measure === "state" ? undefined : computeScale(measure, all)), [measure, all]);
  const outliers = useMemo(() => findOutliers(all), [all]);
  const odd = useMemo(() => new Set(outliers.flatMap(({ ranks }) => ranks)), [outliers]);
  const blamed = useMemo(() => new Set(named), [named]);
  const [onlyOdd, setOnlyOdd] = useState(false);
  const [pointed, setPointed] = useState<number>();
  const pinned = typeof chosen === "number" ? chosen : undefined;
  const shown = all.find(({ rank }) => rank.rank === (pointed ?? pinned));
  const wide = task.worldSize > MAX_RANKS_BESIDE;
  const table = <RankProgressTable pulses={pulses} chosen={chosen} onChoose={onPin} />;
  return (
    <Card
      title={
        <>
          {t("task.ranks")} <span className="ml-1 text-sm font-normal text-muted">{formatInteger(task.worldSize)}</span>
        </>
      }
      aside={
        amounts.length > 0 && (
          <select
            aria-label={t("heat.by")}
            className="control h-8 w-auto max-w-48"
            value={measure}
            onChange={({ target }) => remember(target.value)}
          >
            {(["state", ...amounts] as const).map((each) => (
              <option key={each} value={each}>
                {t(`heat.measure.${each}`)}
              </option>
            ))}
          </select>
        )
      }
    >
      <OutlierList outliers={outliers} only={onlyOdd} onOnly={setOnlyOdd} onPin={onPin} />
      <div className={cx("space-y-3", wide && "lg:grid lg:grid-cols-[minmax(0,1fr)_18rem] lg:gap-5 lg:space-y-0")}>
        <div className="min-w-0 space-y-3">
          <Legend measure={measure} scale={scale} all={all} blamed={blamed.size} emulated={reported?.emulated} />
          <HeatMap
            nodes={nodes}
            all={all}
            measure={measure}
            scale={scale}
            odd={odd}
            blamed={blamed}
            onlyOdd={onlyOdd && odd.size > 0}
            pinned={pinned}
            onPin={onPin}
            onPoint={setPointed}
          />
        </div>
        <div
          className={cx(
            "sticky bottom-0 z-10 -mx-4 border-y bg-sunken px-4 py-2",
            wide && "lg:top-20 lg:bottom-auto lg:mx-0 lg:self-start lg:rounded-lg lg:border",
          )}
        >
          {shown ? (
            <RankInspector task={task} seen={shown} amounts={amounts} onRead={onRead} onCharts={onCharts} />
          ) : (
            <p className="text-sm text-muted">{t("task.ranksHint")}</p>
          )}
        </div>
      </div>
      {pulses.length > 0 &&
        (wide ? (
          <Collapsible
            wanted={false}
            title={t("rankProgress.title")}
            className="mt-3"
            summaryClassName="cursor-pointer text-sm text-muted"
            whenOpen={() => table}
          />
        ) : (
          table
        ))}
    </Card>
  );
}

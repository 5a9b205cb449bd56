import { type CSSProperties, memo, type SyntheticEvent, useMemo } from "react";
import { useTranslation } from "react-i18next";
import type { TaskNode } from "@/api/types";
import { cx } from "@/lib/cx";
import { moveRovingFocus } from "@/lib/roving-focus";
import { Badge } from "@/ui/badge";
import { GpuSummary } from "@/ui/gpu-summary";
import { RankCell } from "./rank-cell";
import { formatMetric, APPEARANCES, getAppearance, getAppearanceText } from "./rank-appearance";
import {
  getMetricValue,
  getScaleLevel,
  type ColorBy,
  type Scale,
  type RankSnapshot,
  shortenNames,
} from "./rank-metrics";

interface HeatMapProps {
  nodes: TaskNode[];
  all: RankSnapshot[];
  measure: ColorBy;
  scale: Scale | undefined;
  odd: Set<number>;
  /** Ranks that the diagnosis names as a cause. */
  blamed: Set<number>;
  /** Highlights outliers only. */
  onlyOdd: boolean;
  pinned: number | undefined;
  onPin: (rank: number) => void;
  /** Called with the rank under the pointer or the focus. */
  onPoint: (rank: number | undefined) => void;
}

/** With more nodes, a node has no header line of its own. */
const MAX_NODES_WITH_HEADERS = 4;
/** With more nodes, names are not shown: they take more room than cells. */
const MAX_NODE_NAMES = 256;
/** Cells of at least this size show the rank's number. */
const MIN_PX_FOR_NUMBERS = 24;
/** Longer names are cut; the tooltip has the whole. */
const MAX_NAME_CHARACTERS = 10;

/** A cell for each rank, grouped by node. */
export const HeatMap = memo(function HeatMap(props: HeatMapProps) {
  const { nodes, all, measure, scale, odd, blamed, onlyOdd, pinned, onPin, onPoint } = props;
  const { t } = useTranslation();
  const names = useMemo(() => shortenNames(nodes.map(({ name }) => name)), [nodes]);
  const ofNode = useMemo(() => {
    const found = nodes.map((): RankSnapshot[] => []);
    const place = new Map(nodes.map(({ nodeRank }, at) => [nodeRank, at]));
    for (const seen of all) found[place.get(seen.rank.nodeRank) ?? -1]?.push(seen);
    return found;
  }, [nodes, all]);
  const size = computeCellSize(all.length, nodes.length);
  const numbered = size >= MIN_PX_FOR_NUMBERS;
  const longest = Math.max(...names.map(({ length }) => length));
  const widest = Math.max(...ofNode.map(({ length }) => length));
  const spacious = nodes.length <= MAX_NODES_WITH_HEADERS && all.length <= 64;
  const named = nodes.length <= MAX_NODE_NAMES;
  const tabStop = pinned ?? all[0]?.rank.rank;

  const count = all.length;
  const ranks = useMemo(() => Array.from({ length: count }, (_, rank) => t("task.rank", { rank })), [count, t]);
  const words = useMemo(() => APPEARANCES.map((look) => getAppearanceText(t, look)), [t]);
  const label = (seen: RankSnapshot) => {
    const text = [ranks[seen.rank.rank], words[APPEARANCES.indexOf(getAppearance(seen.rank))]];
    if (measure !== "state") {
      const value = getMetricValue(measure, seen);
      text.push(`${t(`heat.measure.${measure}`)} ${value == null ? t("heat.none") : formatMetric(t, measure, value)}`);
    }
    if (blamed.has(seen.rank.rank)) text.push(t("task.blamed"));
    return text.join(", ");
  };
  const level = (seen: RankSnapshot) => {
    if (measure === "state" || !scale) return undefined;
    const value = getMetricValue(measure, seen);
    return value == null ? null : getScaleLevel(value, scale);
  };

  return (
    <ul
      className={cx(
        "text-xs [--cell:var(--small)] sm:[--cell:var(--large)]",
        spacious ? "space-y-3" : named ? "columns-(--node) gap-x-4" : "flex flex-wrap gap-x-1.5 gap-y-0.5",
      )}
      style={
        {
          "--small": `${Math.min(size, Math.max(11, size - 3))}px`,
          "--large": `${size}px`,
          "--tall": numbered ? "var(--cell)" : "calc(var(--cell) * 1.25)",
          "--name": `calc(${Math.min(longest, MAX_NAME_CHARACTERS)}ch + 0.5rem)`,
          "--node": `calc(var(--name) + ${widest} * (var(--cell) + 2px))`,
          "--cells": `repeat(${widest}, minmax(var(--cell), ${numbered ? "var(--cell)" : "calc(var(--cell) * 1.8)"}))`,
        } as CSSProperties
      }
      onKeyDown={moveRovingFocus}
      onClick={(event) => notifyRank(event, onPin)}
      onPointerOver={(event) => onPoint(getRankOfElement(event))}
      onPointerLeave={() => onPoint(undefined)}
      onFocus={(event) => onPoint(getRankOfElement(event))}
      onBlur={() => onPoint(undefined)}
    >
      {nodes.map((node, at) => (
        <li key={node.nodeRank} className={cx(!spacious && "flex break-inside-avoid items-center pb-0.5")}>
          {spacious ? (
            <NodeLine node={node} master={node.nodeRank === 0 && nodes.length > 1} />
          ) : (
            <span className={named ? "w-(--name) shrink-0 truncate pr-1.5 text-muted" : "sr-only"} title={node.name}>
              {named ? names[at] : node.name}
            </span>
          )}
          <div
            className={
              spacious ? "mt-1.5 flex flex-wrap gap-1" : cx("grid gap-0.5", named && "flex-1", "grid-cols-(--cells)")
            }
          >
            {ofNode[at]?.map((seen) => (
              <RankCell
                key={seen.rank.rank}
                rank={seen.rank.rank}
                look={getAppearance(seen.rank)}
                level={level(seen)}
                label={label(seen)}
                numbered={numbered}
                pinned={seen.rank.rank === pinned}
                tabStop={seen.rank.rank === tabStop}
                odd={odd.has(seen.rank.rank)}
                blamed={blamed.has(seen.rank.rank)}
                faded={onlyOdd && !odd.has(seen.rank.rank)}
              />
            ))}
          </div>
        </li>
      ))}
    </ul>
  );
});

/** Returns the size of a cell in pixels, so that all fit. */
function computeCellSize(ranks: number, nodes: number): number {
  const room = Math.max(ranks, 4 * nodes);
  if (room <= 16) return 32;
  if (room <= 64) return 26;
  if (room <= 256) return 18;
  return room <= 1024 ? 14 : 10;
}

function getRankOfElement({ target }: SyntheticEvent): number | undefined {
  const found = (target as HTMLElement).closest<HTMLElement>("[data-rank]")?.dataset.rank;
  return found === undefined ? undefined : Number(found);
}

function notifyRank(event: SyntheticEvent, tell: (rank: number) => void) {
  const rank = getRankOfElement(event);
  if (rank !== undefined) tell(rank);
}

function NodeLine({ node, master }: { node: TaskNode; master: boolean }) {
  const { t } = useTranslation();
  return (
    <div className="flex flex-wrap items-center gap-x-2 gap-y-1 text-sm">
      <span className="min-w-0 font-medium break-words">{node.name}</span>
      {master && <Badge tone="warn">{t("task.master")}</Badge>}
      <span className="text-muted">{node.zone}</span>
      <span className="text-muted">
        <GpuSummary type={node.gpuType} count={node.gpuType ? node.processes : 0} emulated={node.emulated} />
      </span>
    </div>
  );
}

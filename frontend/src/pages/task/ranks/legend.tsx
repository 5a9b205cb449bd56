import { useTranslation } from "react-i18next";
import { cx } from "@/lib/cx";
import { formatInteger } from "@/lib/format";
import { Badge } from "@/ui/badge";
import {
  formatMetric,
  BLAMED_CLASSES,
  BLAMED_SIGN,
  APPEARANCES,
  getAppearance,
  APPEARANCE_CLASSES,
  getAppearanceText,
  type RankAppearance,
  APPEARANCE_SIGNS,
} from "./rank-appearance";
import { type RankMetric, getMetricValue, LEVELS, type ColorBy, type Scale, type RankSnapshot } from "./rank-metrics";

const OF_GPUS = new Set<RankMetric>(["gpu", "gpuMemory", "power", "temperature"]);

interface LegendProps {
  measure: ColorBy;
  scale: Scale | undefined;
  all: RankSnapshot[];
  /** Number of ranks that the diagnosis names as a cause. */
  blamed: number;
  emulated: boolean | undefined;
}

/** The meaning of the colours. */
export function Legend({ measure, scale, all, blamed, emulated }: LegendProps) {
  return (
    <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
      {measure === "state" || !scale ? (
        <States all={all} />
      ) : (
        <Colours amount={measure} scale={scale} all={all} emulated={emulated && OF_GPUS.has(measure)} />
      )}
      {blamed > 0 && <Blamed count={blamed} />}
    </div>
  );
}

function Blamed({ count }: { count: number }) {
  const { t } = useTranslation();
  return (
    <p className="flex items-center gap-1.5 text-xs text-muted">
      <span
        aria-hidden
        className={cx(
          "grid size-3.5 place-items-center rounded-[22%] border text-[0.6rem] leading-none",
          BLAMED_CLASSES,
        )}
      >
        {BLAMED_SIGN}
      </span>
      {t("task.blamed")} {formatInteger(count)}
    </p>
  );
}

function States({ all }: { all: RankSnapshot[] }) {
  const { t } = useTranslation();
  const counts = all.reduce<Partial<Record<RankAppearance, number>>>((sum, { rank }) => {
    const look = getAppearance(rank);
    return { ...sum, [look]: (sum[look] ?? 0) + 1 };
  }, {});
  return (
    <ul className="flex flex-wrap gap-x-3 gap-y-1 text-xs text-muted">
      {APPEARANCES.filter((look) => counts[look]).map((look) => (
        <li key={look} className="flex items-center gap-1.5">
          <span
            aria-hidden
            className={cx(
              "grid size-3.5 place-items-center border text-[0.6rem] leading-none",
              APPEARANCE_CLASSES[look],
            )}
          >
            {APPEARANCE_SIGNS[look]}
          </span>
          {getAppearanceText(t, look)} {formatInteger(counts[look] ?? 0)}
        </li>
      ))}
    </ul>
  );
}

interface ColoursProps {
  amount: RankMetric;
  scale: Scale;
  all: RankSnapshot[];
  emulated: boolean | undefined;
}

function Colours({ amount, scale, all, emulated }: ColoursProps) {
  const { t } = useTranslation();
  const missing = all.filter((seen) => getMetricValue(amount, seen) == null).length;
  return (
    <p className="flex flex-wrap items-center gap-x-2 gap-y-1 text-xs text-muted tabular-nums">
      <span>{formatMetric(t, amount, scale.from)}</span>
      <span aria-hidden className="flex h-3 w-32 overflow-hidden rounded border">
        {Array.from({ length: LEVELS }, (_, level) => (
          <span key={level} className="flex-1" style={{ background: `var(--heat-${level})` }} />
        ))}
      </span>
      <span>{formatMetric(t, amount, scale.to)}</span>
      {emulated && (
        <Badge tone="info" title={t("machines.emulated")}>
          {t("gpu.emulated")}
        </Badge>
      )}
      {missing > 0 && (
        <span className="ml-2 flex items-center gap-1.5">
          <span aria-hidden className="size-3.5 rounded-[22%] border border-dashed border-line-strong" />
          {t("heat.none")} {formatInteger(missing)}
        </span>
      )}
    </p>
  );
}

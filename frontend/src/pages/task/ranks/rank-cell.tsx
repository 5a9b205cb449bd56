import { memo } from "react";
import { cx } from "@/lib/cx";
import {
  BLAMED_CLASSES,
  BLAMED_SIGN,
  APPEARANCE_CLASSES,
  type RankAppearance,
  APPEARANCE_SIGNS,
} from "./rank-appearance";

interface RankCellProps {
  rank: number;
  look: RankAppearance;
  /** A level of the colour scale; null: no value; undefined: coloured by state. */
  level: number | null | undefined;
  label: string;
  numbered: boolean;
  pinned: boolean;
  tabStop: boolean;
  odd: boolean;
  blamed: boolean;
  faded: boolean;
}

/** A rank's cell; the map handles its events. */
export const RankCell = memo(function Cell(props: RankCellProps) {
  const { rank, look, level, label, numbered, pinned, tabStop, odd, blamed, faded } = props;
  const hot = level != null && look !== "failed";
  return (
    <button
      type="button"
      data-rove
      data-rank={rank}
      tabIndex={tabStop ? 0 : -1}
      aria-label={label}
      aria-pressed={pinned}
      className={cx(
        "grid h-(--tall) min-w-(--cell) place-items-center border leading-none tabular-nums",
        numbered ? "text-xs font-medium" : "text-[0.6rem]",
        hot
          ? "rounded-[22%] border-line"
          : level === null && look !== "failed"
            ? "rounded-[22%] border-dashed border-line-strong text-muted"
            : APPEARANCE_CLASSES[look],
        blamed && look !== "failed" ? BLAMED_CLASSES : odd && "shadow-[inset_0_0_0_2px_var(--warn)]",
        faded && "opacity-25",
        pinned && "ring-2 ring-ink ring-offset-1 ring-offset-surface",
      )}
      style={hot ? heat(level) : undefined}
    >
      {numbered ? rank : APPEARANCE_SIGNS[look] || (blamed ? BLAMED_SIGN : "")}
    </button>
  );
});

const heat = (level: number) => ({
  background: `var(--heat-${level})`,
  color: `var(--heat-ink-${level < 4 ? "low" : "high"})`,
});

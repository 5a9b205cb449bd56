import type { TFunction } from "i18next";
import type { Rank } from "@/api/types";
import { formatBytes, formatDuration } from "@/lib/format";
import type { RankMetric } from "./rank-metrics";

export type RankAppearance = "waiting" | "running" | NonNullable<Rank["ending"]>;

/** Returns the appearance of a rank: its state, or how it exited. */
export function getAppearance({ state, ending }: Rank): RankAppearance {
  return state === "exited" ? (ending ?? "done") : state;
}

/** Only the rank that failed first is round. */
export const APPEARANCE_CLASSES: Record<RankAppearance, string> = {
  running: "rounded-[22%] border-accent-line bg-accent-soft text-accent-ink",
  waiting: "rounded-[22%] border-dashed border-line-strong text-muted",
  done: "rounded-[22%] border-ok-line bg-ok-soft text-ok-ink",
  failed: "rounded-full border-bad bg-bad text-white font-bold",
  after: "rounded-[22%] border-2 border-warn bg-warn-soft text-warn-ink",
  ended: "rounded-[22%] border-line-strong/60 bg-sunken text-muted",
};

/** Outline of ranks that the diagnosis names as a cause. */
export const BLAMED_CLASSES = "border-bad font-bold shadow-[inset_0_0_0_2px_var(--bad)]";
export const BLAMED_SIGN = "?";

export const APPEARANCES = Object.keys(APPEARANCE_CLASSES) as RankAppearance[];

/** Shown in cells without room for a number. */
export const APPEARANCE_SIGNS: Record<RankAppearance, string> = {
  running: "",
  waiting: "",
  done: "✓",
  failed: "✕",
  after: "!",
  ended: "–",
};

export function getAppearanceText(t: TFunction, look: RankAppearance): string {
  return look === "waiting" || look === "running" ? t(`task.rankState.${look}`) : t(`task.ending.${look}`);
}

export function formatMetric(t: TFunction, amount: RankMetric, value: number): string {
  switch (amount) {
    case "gpu":
    case "cpu":
      return `${Math.round(value)}%`;
    case "gpuMemory":
    case "memory":
      return formatBytes(value);
    case "power":
      return `${Math.round(value)} W`;
    case "temperature":
      return `${Math.round(value)} °C`;
    case "lag":
      return t("heat.steps", { count: value });
    case "silent":
      return value < 10 ? t("rankProgress.seconds", { seconds: value.toFixed(1) }) : formatDuration(t, value);
  }
}

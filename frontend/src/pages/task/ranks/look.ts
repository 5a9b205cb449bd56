import type { TFunction } from "i18next";
import type { Rank } from "@/api/types";
import { bytes, duration } from "@/lib/format";
import type { Amount } from "./measures";

export type RankLook = "waiting" | "running" | NonNullable<Rank["ending"]>;

/** "exited" says less than how it did. */
export function lookOf({ state, ending }: Rank): RankLook {
  return state === "exited" ? (ending ?? "done") : state;
}

/** The one that failed first is round, and nothing else is. */
export const LOOKS: Record<RankLook, string> = {
  running: "rounded-[22%] border-accent-line bg-accent-soft text-accent-ink",
  waiting: "rounded-[22%] border-dashed border-line-strong text-muted",
  done: "rounded-[22%] border-ok-line bg-ok-soft text-ok-ink",
  failed: "rounded-full border-bad bg-bad text-white font-bold",
  after: "rounded-[22%] border-2 border-warn bg-warn-soft text-warn-ink",
  ended: "rounded-[22%] border-line-strong/60 bg-sunken text-muted",
};

/** The diagnosis names it as a cause, whatever its state is. */
export const BLAMED = "border-bad font-bold shadow-[inset_0_0_0_2px_var(--bad)]";
export const BLAMED_SIGN = "?";

export const LOOK_NAMES = Object.keys(LOOKS) as RankLook[];

/** Where there is no room for a number. */
export const SIGNS: Record<RankLook, string> = {
  running: "",
  waiting: "",
  done: "✓",
  failed: "✕",
  after: "!",
  ended: "–",
};

export function lookWord(t: TFunction, look: RankLook): string {
  return look === "waiting" || look === "running" ? t(`task.rankState.${look}`) : t(`task.ending.${look}`);
}

export function amountText(t: TFunction, amount: Amount, value: number): string {
  switch (amount) {
    case "gpu":
    case "cpu":
      return `${Math.round(value)}%`;
    case "gpuMemory":
    case "memory":
      return bytes(value);
    case "power":
      return `${Math.round(value)} W`;
    case "temperature":
      return `${Math.round(value)} °C`;
    case "lag":
      return t("heat.steps", { count: value });
    case "silent":
      return value < 10 ? t("pulse.seconds", { seconds: value.toFixed(1) }) : duration(t, value);
  }
}

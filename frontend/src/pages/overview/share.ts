import type { GpuTally } from "@/api/types";

/** How a GPU can be, what is of use first. */
export const STATES = ["busy", "unknown", "idle", "free", "outOfService"] as const;
export type GpuState = (typeof STATES)[number];

export const FILL: Record<GpuState, string> = {
  busy: "bg-ok",
  unknown: "bg-info",
  idle: "bg-warn",
  free: "bg-line-strong/50",
  outOfService: "bg-bad",
};

export const percent = (share: number): string =>
  `${share > 0 && share < 0.1 ? (share * 100).toFixed(1) : Math.round(share * 100)} %`;

/** "–" of nothing. */
export const percentOf = (part: number, whole: number): string => (whole > 0 ? percent(part / whole) : "–");

export const present = (tally: GpuTally): GpuState[] => STATES.filter((state) => tally[state] > 0);

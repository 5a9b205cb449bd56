import type { GpuCounts } from "@/api/types";

/** States of a GPU, the most useful first. */
export const GPU_STATES = ["busy", "unknown", "idle", "free", "outOfService"] as const;
export type GpuState = (typeof GPU_STATES)[number];

export const STATE_COLORS: Record<GpuState, string> = {
  busy: "bg-ok",
  unknown: "bg-info",
  idle: "bg-warn",
  free: "bg-line-strong/50",
  outOfService: "bg-bad",
};

export const formatPercent = (share: number): string =>
  `${share > 0 && share < 0.1 ? (share * 100).toFixed(1) : Math.round(share * 100)} %`;

/** Formats a share in percent; "–" without a whole. */
export const formatShare = (part: number, whole: number): string => (whole > 0 ? formatPercent(part / whole) : "–");

export const listStatesPresent = (tally: GpuCounts): GpuState[] => GPU_STATES.filter((state) => tally[state] > 0);

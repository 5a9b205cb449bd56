import type { RunValue } from "@/api/types";

/** How a value differs from the baseline's. */
export interface ValueDifference {
  delta: number;
  /** Of the baseline's size; undefined where that is zero. */
  share: number | undefined;
  /** Whether it is better or worse; undefined where neither is, or both are the same. */
  verdict: "better" | "worse" | undefined;
}

/** Returns the difference of two numbers; undefined where one is missing or no number. */
export function compareValues(
  value: RunValue | undefined,
  baseline: RunValue | undefined,
  higherIsBetter: boolean | null | undefined,
): ValueDifference | undefined {
  if (typeof value !== "number" || typeof baseline !== "number") return undefined;
  const delta = value - baseline;
  if (!Number.isFinite(delta)) return undefined;
  const share = baseline === 0 ? undefined : delta / Math.abs(baseline);
  const judged = delta !== 0 && higherIsBetter != null;
  return { delta, share, verdict: judged ? (delta > 0 === higherIsBetter ? "better" : "worse") : undefined };
}

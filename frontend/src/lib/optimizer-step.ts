import type { TFunction } from "i18next";
import type { Task } from "@/api/types";
import { formatNumber, formatInteger } from "./format";

/** Returns the effective batch of an optimizer step over all ranks (`64 = 8 × 4 × 2`) and the scaled learning rate. */
export function describeOptimizerStep(batch: Task["batch"] | undefined, t: TFunction): [name: string, value: string][] {
  if (!batch) return [];
  const text = batch.ownScript ? ` (${t("step.told")})` : "";
  const product = [batch.perRank, batch.dataParallel, batch.accumulation].map(formatInteger).join(" × ");
  const facts: [string, string][] = [
    [t("step.effectiveBatch"), `${formatInteger(batch.effective)} = ${product}${text}`],
  ];
  if (batch.scaledLearningRate != null && batch.learningRate != null) {
    const scaled = batch.learningRateScaling !== "none";
    const from = scaled ? ` (${formatNumber(batch.learningRate)}, ${batch.learningRateScaling})` : "";
    facts.push([t("step.learningRate"), `${formatNumber(batch.scaledLearningRate)}${from}${text}`]);
  }
  return facts;
}

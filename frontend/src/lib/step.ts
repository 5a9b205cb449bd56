import type { TFunction } from "i18next";
import type { Task } from "@/api/types";
import { figure, integer } from "./format";

/** What an optimizer step comes to over all ranks: `64 = 8 × 4 × 2`, and the scaled learning rate. */
export function stepOf(batch: Task["batch"] | undefined, t: TFunction): [name: string, value: string][] {
  if (!batch) return [];
  const told = batch.ownScript ? ` (${t("step.told")})` : "";
  const product = [batch.perRank, batch.dataParallel, batch.accumulation].map(integer).join(" × ");
  const facts: [string, string][] = [[t("step.effectiveBatch"), `${integer(batch.effective)} = ${product}${told}`]];
  if (batch.scaledLearningRate != null && batch.learningRate != null) {
    const scaled = batch.learningRateScaling !== "none";
    const from = scaled ? ` (${figure(batch.learningRate)}, ${batch.learningRateScaling})` : "";
    facts.push([t("step.learningRate"), `${figure(batch.scaledLearningRate)}${from}${told}`]);
  }
  return facts;
}

import type { TFunction } from "i18next";
import type { Hosted } from "@/api/hosted";
import { gpuHours, money } from "@/lib/format";

/** So far. */
export function costText(t: TFunction, { cost }: Hosted): string {
  const hours = gpuHours(t, cost.gpuHours);
  if (cost.amount !== null) return t("hosted.costValue", { amount: money(cost.amount, cost.currency), hours });
  return cost.gpuHours > 0 ? t("hosted.costUnpriced", { hours }) : hours;
}

import type { TFunction } from "i18next";
import type { Hosted } from "@/api/hosted";
import { measured, money } from "@/lib/format";

/** So far. */
export function costText(t: TFunction, { cost: { gpuHours, amount, currency } }: Hosted): string {
  const hours = measured(gpuHours);
  if (amount !== null) return t("hosted.costValue", { amount: money(amount, currency), hours });
  return t(gpuHours > 0 ? "hosted.costUnpriced" : "hosted.costHours", { hours });
}

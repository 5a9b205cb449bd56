import type { TFunction } from "i18next";
import type { ManagedEnvironment } from "@/api/managed-environments";
import { formatGpuTime, formatMoney } from "@/lib/format";

/** Formats the cost so far. */
export function formatEnvironmentCost(t: TFunction, { cost }: ManagedEnvironment): string {
  const hours = formatGpuTime(t, cost.gpuHours);
  if (cost.amount !== null)
    return t("managedEnvironment.costValue", { amount: formatMoney(cost.amount, cost.currency), hours });
  return cost.gpuHours > 0 ? t("managedEnvironment.costUnpriced", { hours }) : hours;
}

import type { TFunction } from "i18next";
import type { MetricName } from "@/api/telemetry";
import type { TelemetrySeries } from "@/api/types";
import { formatBytes, formatMeasurement } from "@/lib/format";
import { type PanelId, decodeThrottleReasons } from "./metrics";

const DIRECTION_TEXTS: Partial<Record<MetricName, "received" | "sent" | "read" | "written">> = {
  received: "received",
  sent: "sent",
  nvlink_received: "received",
  nvlink_sent: "sent",
  pcie_received: "received",
  pcie_sent: "sent",
  disk_read: "read",
  disk_written: "written",
  rank_read: "read",
  rank_written: "written",
};

const GPU_METRICS = /^(gpu|power$|temperature$|sm_|memory_clock$|throttled$|ecc$|xid$|nvlink_|pcie_)/;

/** Returns a series' name: a rank, or a part of a node. `nodes`: there are several nodes. */
export function formatSeriesName(t: TFunction, { rank, node, index, metric }: TelemetrySeries, nodes: boolean): string {
  const way = DIRECTION_TEXTS[metric];
  const place = index && GPU_METRICS.test(metric) ? `GPU ${index}` : index;
  const whose =
    rank != null ? [t("machines.rank", { rank })] : [nodes && node != null ? t("machines.node", { node }) : "", place];
  return [...whose, way ? t(`machines.${way}`) : ""].filter(Boolean).join(" · ") || t("machines.machine");
}

export function formatInUnit(value: number, unit: string): string {
  if (unit === "B") return formatBytes(value);
  if (unit === "B/s") return `${formatBytes(value)}/s`;
  return `${formatMeasurement(value)}${unit && (unit === "%" ? " %" : ` ${unit}`)}`;
}

/** Formats a value of a chart. */
export function formatValue(t: TFunction, id: PanelId, unit: string, value: number): string {
  if (id !== "throttled" || !Number.isInteger(value)) return formatInUnit(value, unit);
  const why = decodeThrottleReasons(value).map((each) => t(`machines.slowed.${each}`));
  return why.length > 0 ? why.join(" + ") : t("machines.slowed.not");
}

import type { TFunction } from "i18next";
import { useId, useMemo } from "react";
import { useTranslation } from "react-i18next";
import type { Stretch } from "@/api/telemetry";
import type { TelemetrySeries } from "@/api/types";
import { bytes, measured } from "@/lib/format";
import { type Drawn, moments as momentsOf, type PanelId, panelsOf } from "./bands";
import { type Curve, TimeChart, type TimeMark } from "./time-chart";

/** Told apart also by those who see fewer colours: Okabe and Ito's, for light and dark. */
const COLORS = ["--curve-1", "--curve-2", "--curve-3", "--curve-4", "--curve-5", "--curve-6", "--curve-7"];

interface Props {
  answer: { from: string; stepSeconds: number; series: TelemetrySeries[] };
  marks: TimeMark[];
  /** A rank that is singled out. */
  alone?: number;
  below?: (at: number) => string;
  extra?: (moments: number[], group: string) => React.ReactNode;
  onZoom: (stretch: Stretch) => void;
}

/** Charts of what was measured on one axis of time, whose cursors move together; dragging looks closer. */
export function Panels({ answer, marks, alone, below, extra, onZoom }: Props) {
  const { t } = useTranslation();
  const group = useId();
  const { from, stepSeconds, series } = answer;
  const panels = useMemo(() => panelsOf(series, alone), [series, alone]);
  const count = series[0]?.values.length ?? 0;
  const moments = useMemo(() => momentsOf(from, stepSeconds, count), [from, stepSeconds, count]);
  const zoom = (from: number, to: number) => onZoom({ from: from * 1000, to: to * 1000 });
  return (
    <div className="grid gap-x-4 gap-y-3 xl:grid-cols-2">
      {extra?.(moments, group)}
      {panels.map((panel) => (
        <figure key={panel.id} className="min-w-0">
          <figcaption className="mb-1 flex flex-wrap items-baseline justify-between gap-x-3 text-sm">
            <span>{t(`machines.panel.${panel.id}`)}</span>
            <span className="text-xs text-muted tabular-nums">{summary(t, panel.drawn, panel.unit, panel.count)}</span>
          </figcaption>
          <TimeChart
            label={`${t(`machines.panel.${panel.id}`)}: ${summary(t, panel.drawn, panel.unit, panel.count)}`}
            moments={moments}
            curves={curvesOf(t, panel.drawn)}
            marks={marks}
            group={group}
            binary={panel.unit.startsWith("B")}
            text={(value) => inUnit(value, panel.unit)}
            below={below}
            onZoom={zoom}
          />
        </figure>
      ))}
    </div>
  );
}

export function inUnit(value: number, unit: string): string {
  if (unit === "B") return bytes(value);
  if (unit === "B/s") return `${bytes(value)}/s`;
  return `${measured(value)}${unit && (unit === "%" ? " %" : ` ${unit}`)}`;
}

function curvesOf(t: TFunction, drawn: Drawn[]): Curve[] {
  let line = 0;
  return drawn.map(({ role, values, series }) => {
    if (role === "line") {
      const color = COLORS[line++ % COLORS.length] ?? "--accent-ink";
      return { label: series ? nameOf(t, series) : "", values, color, look: drawn.length > 1 ? "line" : "strong" };
    }
    const label = t(`machines.${role}`);
    return role === "middle"
      ? { label, values, color: "--accent-ink", look: "strong" }
      : { label, values, color: "--accent-line", look: "edge" };
  });
}

export function nameOf(t: TFunction, { rank, node, index, metric }: TelemetrySeries): string {
  if (rank != null) return t("machines.rank", { rank });
  const of = node == null ? "" : t("machines.node", { node });
  return [of, index, metric === "sent" || metric === "received" ? t(`machines.${metric}`) : ""]
    .filter(Boolean)
    .join(" ");
}

/** The newest of it: of one its value, of several their range. */
function summary(t: TFunction, drawn: Drawn[], unit: string, count: number): string {
  const newest = drawn.flatMap(({ values }) => values.findLast((value) => value != null) ?? []);
  if (newest.length === 0) return "";
  const [least, most] = [Math.min(...newest), Math.max(...newest)];
  const range = least === most ? inUnit(most, unit) : `${inUnit(least, unit)} – ${inUnit(most, unit)}`;
  return count > 1 ? t("machines.of", { range, count }) : range;
}

export type { PanelId };

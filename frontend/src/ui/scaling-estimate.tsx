import { useTranslation } from "react-i18next";
import type { Scaling as ScalingData } from "@/api/types";
import { formatCount, formatMeasurement } from "@/lib/format";

interface Range {
  low: number;
  high: number;
}

function formatRange({ low, high }: Range, shown: (value: number) => string): string {
  const [from, to] = [shown(low), shown(high)];
  return from === to ? from : `${from} – ${to}`;
}

const formatPercent = (share: number) => `${Math.round(share * 100)}%`;
const formatFactor = (value: number) => `${formatMeasurement(value)}x`;

/** The expected speed-up and efficiency as ranges, with their basis. */
export function ScalingEstimate({ scaling }: { scaling: ScalingData }) {
  const { t } = useTranslation();
  return (
    <div className="text-sm">
      <table className="w-full tabular-nums">
        <thead className="text-left text-muted">
          <tr className="*:pb-1 *:font-normal">
            <th>{t("scaling.nodes")}</th>
            <th>{t("scaling.gpus")}</th>
            <th>{t("scaling.theoretical")}</th>
            <th>{t("scaling.actual")}</th>
            <th className="text-right">{t("scaling.efficiency")}</th>
          </tr>
        </thead>
        <tbody>
          {scaling.rows.map((row) => (
            <tr key={row.nodes} className="last:font-medium">
              <td>{row.nodes}</td>
              <td>{row.processes}</td>
              <td>{formatFactor(row.theoretical)}</td>
              <td>{formatRange(row.speedup, formatFactor)}</td>
              <td className="text-right">{formatRange(row.efficiency, formatPercent)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p className="mt-2">{t("task.tokensPerSecond", { value: formatRange(scaling.tokensPerSecond, formatCount) })}</p>
      <ul className="mt-2 list-disc space-y-1 pl-4 text-muted">
        {scaling.reasons.map(({ code, message, hint }) => (
          <li key={code} title={hint || undefined}>
            {message}
          </li>
        ))}
      </ul>
    </div>
  );
}

import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { GpuCounts, Overview } from "@/api/types";
import { formatInteger } from "@/lib/format";
import { Card } from "@/ui/card";
import { MEDIUM_COLUMN } from "@/ui/table";
import { SegmentedControl } from "./segmented-control";
import { GpuBar } from "./gpu-bar";
import { formatShare } from "./gpu-states";

const BY = ["zones", "types", "projects", "people"] as const;
type GroupBy = (typeof BY)[number];

/** Addresses of the filtered lists behind the bars. */
const LIST: Partial<Record<GroupBy, (tally: GpuCounts) => string>> = {
  zones: ({ key }) => `/environments?zone=${encodeURIComponent(key)}`,
  types: ({ key }) => `/environments?gpuType=${encodeURIComponent(key)}`,
  people: ({ key }) => `/training?status=running&owner=${encodeURIComponent(key)}`,
  projects: ({ key }) => `/usage?by=task&project=${encodeURIComponent(key)}`,
};

interface GpusProps {
  overview: Overview;
  /** Groupings to choose from; the first is the default. */
  by?: readonly GroupBy[];
  value: string;
  onChange: (by: string) => void;
}

export function GpuBreakdown({ overview, by: choices = BY, value, onChange }: GpusProps) {
  const { t } = useTranslation();
  const by = choices.find((each) => each === value) ?? choices[0] ?? "zones";
  const rows = overview[by].filter(({ total }) => total > 0);
  const most = Math.max(...rows.map(({ total }) => total), 1);
  const nameOf = ({ key, name }: GpuCounts) =>
    name || key || t(by === "types" ? "overview.anyType" : "overview.others");
  return (
    <Card
      title={t("overview.gpusBy")}
      aside={
        <SegmentedControl
          label={t("overview.gpusBy")}
          options={choices.map((each) => [each, t(`overview.by.${each}`)])}
          chosen={by}
          onChange={onChange}
        />
      }
    >
      {rows.length === 0 ? (
        <p className="text-sm text-muted">
          {t(by === "zones" || by === "types" ? "overview.noGpus" : "overview.nothingHeld")}
        </p>
      ) : (
        <div className="max-h-96 overflow-y-auto" tabIndex={0} role="group" aria-label={t(`overview.by.${by}`)}>
          <table className="w-full text-sm">
            <thead className="sticky top-0 bg-surface text-xs text-muted">
              <tr className="*:pb-1.5 *:font-medium">
                <th className="text-left">{t(`overview.by.${by}`)}</th>
                <th className="w-2/5">
                  <span className="sr-only">{t("overview.gpus")}</span>
                </th>
                <th className="text-right">{t("overview.held")}</th>
                <th className={`${MEDIUM_COLUMN} text-right`}>{t("overview.gpu.busy")}</th>
                <th className={`${MEDIUM_COLUMN} pl-3 text-right`}>{t("overview.heldIdle")}</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((tally) => (
                <tr key={tally.key} className="*:py-1 hover:bg-sunken/60">
                  <th scope="row" className="max-w-36 truncate pr-3 text-left font-medium" title={nameOf(tally)}>
                    {LIST[by] && tally.key ? (
                      <Link to={LIST[by](tally)} className="hover:text-accent-ink hover:underline">
                        {nameOf(tally)}
                      </Link>
                    ) : (
                      nameOf(tally)
                    )}
                  </th>
                  <td>
                    <GpuBar tally={tally} name={nameOf(tally)} most={most} />
                  </td>
                  <td className="pl-3 text-right whitespace-nowrap tabular-nums">
                    {formatInteger(tally.held)}
                    {tally.total !== tally.held && <span className="text-muted"> / {formatInteger(tally.total)}</span>}
                  </td>
                  <td className={`${MEDIUM_COLUMN} pl-3 text-right tabular-nums`}>
                    {formatShare(tally.busy, tally.held)}
                  </td>
                  <td className={`${MEDIUM_COLUMN} pl-3 text-right tabular-nums`}>
                    {tally.idle > 0 ? formatInteger(tally.idle) : "–"}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Card>
  );
}

import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { Overview } from "@/api/types";
import { formatGpuTime } from "@/lib/format";
import { Card } from "@/ui/card";
import { TimeBreakdownBar, PARTS, type Part } from "@/pages/usage/time-breakdown";
import { formatShare } from "./gpu-states";

/** How the week's held GPU time was spent. */
export function Goodput({ overview: { goodput } }: { overview: Overview }) {
  const { t } = useTranslation();
  const parts = PARTS.filter((part): part is Exclude<Part, "open"> => part !== "open" && goodput[part] > 0);
  return (
    <Card
      title={t("overview.goodput")}
      aside={
        <Link to="/usage" className="text-sm text-accent-ink hover:underline">
          {t("app.usage")}
        </Link>
      }
    >
      {goodput.gpuHours === 0 ? (
        <p className="text-sm text-muted">{t("usage.empty")}</p>
      ) : (
        <>
          <TimeBreakdownBar
            name={t("overview.goodput")}
            sum={{ ...goodput, openGpuHours: 0 }}
            most={goodput.gpuHours}
          />
          <dl className="mt-3 grid grid-cols-[auto_1fr_auto] gap-x-3 gap-y-1 text-sm">
            {parts.map((part) => (
              <div key={part} className="col-span-3 grid grid-cols-subgrid" title={t(`usage.partHint.${part}`)}>
                <dt className="text-muted">{t(`usage.partOf.${part}`)}</dt>
                <dd className="text-right tabular-nums">{formatGpuTime(t, goodput[part])}</dd>
                <dd className="w-14 text-right text-muted tabular-nums">
                  {formatShare(goodput[part], goodput.gpuHours)}
                </dd>
              </div>
            ))}
            <div className="col-span-3 mt-1 grid grid-cols-subgrid border-t pt-1">
              <dt className="col-span-2 text-muted">{t("overview.ettr")}</dt>
              <dd className="text-right tabular-nums">{goodput.ettr === null ? "–" : formatShare(goodput.ettr, 1)}</dd>
            </div>
          </dl>
        </>
      )}
    </Card>
  );
}

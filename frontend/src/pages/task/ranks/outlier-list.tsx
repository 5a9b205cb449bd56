import { useTranslation } from "react-i18next";
import { MessageList } from "@/ui/message-list";
import { formatMetric } from "./rank-appearance";
import { formatRankSpans } from "./rank-metrics";
import type { Outlier } from "./outliers";

const MAX_SHOWN = 3;

interface OutlierListProps {
  outliers: Outlier[];
  only: boolean;
  onOnly: (only: boolean) => void;
  onPin: (rank: number) => void;
}

/** Ranks that differ from the others, in words. */
export function OutlierList({ outliers, only, onOnly, onPin }: OutlierListProps) {
  const { t } = useTranslation();
  if (outliers.length === 0) return null;
  const notes = outliers.map(({ node, ranks, amount, value, middle }) => ({
    id: `${amount} ${ranks[0]}`,
    level: "warn" as const,
    message: (
      <button type="button" className="rounded text-left hover:underline" onClick={() => onPin(ranks[0] ?? 0)}>
        {t("heat.oddOne", {
          node: node?.name ?? "",
          ranks: formatRankSpans(ranks),
          measure: t(`heat.measure.${amount}`),
          value: formatMetric(t, amount, value),
          middle: formatMetric(t, amount, middle),
        })}
      </button>
    ),
  }));
  return (
    <section aria-label={t("heat.odd")} className="mb-3 space-y-1.5">
      <MessageList notes={notes} most={MAX_SHOWN} />
      <label className="inline-flex items-center gap-1.5 text-sm text-muted">
        <input type="checkbox" checked={only} onChange={({ target }) => onOnly(target.checked)} />
        {t("heat.onlyOdd")}
      </label>
    </section>
  );
}

import { useTranslation } from "react-i18next";
import type { TFunction } from "i18next";
import type { Usage } from "@/api/types";
import { cx } from "@/lib/cx";
import { formatGpuTime } from "@/lib/format";

type Sum = Pick<Usage["total"], Exclude<Part, "open"> | "openGpuHours">;

/** Parts of held time, the productive one first. */
export const PARTS = ["training", "open", "saving", "starting", "redone", "lost", "hung", "idle"] as const;
export type Part = (typeof PARTS)[number];

const FILL: Record<Part, string> = {
  training: "bg-ok",
  open: "bg-accent",
  saving: "bg-info",
  starting: "bg-info-line",
  redone: "bg-warn",
  lost: "bg-bad",
  hung: "bg-bad-ink",
  idle: "bg-line-strong",
};

/** Returns GPU-hours. */
export function getPartHours(sum: Sum, part: Part): number {
  return part === "open" ? sum.openGpuHours : sum[part];
}

function describeParts(t: TFunction, sum: Sum): string {
  return PARTS.filter((part) => getPartHours(sum, part) > 0)
    .map((part) => `${t(`usage.partOf.${part}`)} ${formatGpuTime(t, getPartHours(sum, part))}`)
    .join(t("queue.comma"));
}

/** A bar of held time. Its length is relative to `most`; the parts are also given as text. */
export function TimeBreakdownBar({ name, sum, most }: { name: string; sum: Sum; most: number }) {
  const { t } = useTranslation();
  const text = describeParts(t, sum);
  const share = (hours: number) => `${most > 0 ? (hours / most) * 100 : 0}%`;
  return (
    <div role="img" aria-label={`${name}: ${text}`} title={text} className="flex h-3 min-w-32 gap-px rounded bg-sunken">
      {PARTS.filter((part) => getPartHours(sum, part) > 0).map((part) => (
        <span
          key={part}
          className={cx("h-full first:rounded-l last:rounded-r", FILL[part])}
          style={{ width: share(getPartHours(sum, part)) }}
        />
      ))}
    </div>
  );
}

export function TimeBreakdownLegend() {
  const { t } = useTranslation();
  return (
    <ul aria-label={t("timeline.legend")} className="flex flex-wrap gap-x-4 gap-y-1 text-xs text-muted">
      {PARTS.map((part) => (
        <li key={part} title={t(`usage.partHint.${part}`)} className="flex items-center gap-1.5">
          <span aria-hidden className={cx("size-2.5 rounded-sm", FILL[part])} />
          {t(`usage.partOf.${part}`)}
        </li>
      ))}
    </ul>
  );
}

import { useTranslation } from "react-i18next";
import type { Overview } from "@/api/types";
import { getLocale } from "@/i18n";
import { cx } from "@/lib/cx";
import { formatShortTime } from "@/lib/format";
import { Card } from "@/ui/card";
import { SegmentedControl } from "./segmented-control";
import { formatShare } from "./gpu-states";

const SPANS = ["day", "month"] as const;
type Point = Overview["utilisation"]["day"][number];

interface UtilisationProps {
  overview: Overview;
  value: string;
  onChange: (span: string) => void;
}

const HEIGHT = 100;
const GAP = 0.18;

/** The share of GPUs that were held, and of these the share in use, by hour or day. */
export function Utilisation({ overview, value, onChange }: UtilisationProps) {
  const { t } = useTranslation();
  const span = value === "month" ? "month" : "day";
  const points = overview.utilisation[span];
  const sum = (name: "there" | "held" | "measured" | "used") => points.reduce((all, point) => all + point[name], 0);
  const held = formatShare(sum("held"), sum("there"));
  const used = formatShare(sum("used"), sum("measured"));
  const measured = t("overview.measuredShare", { share: formatShare(sum("measured"), sum("there")) });
  const heldText = t("overview.heldShare", { share: held });
  const usedText = t("overview.usedShare", { share: used });
  return (
    <Card
      title={t("overview.utilisation")}
      aside={
        <SegmentedControl
          label={t("overview.utilisation")}
          options={SPANS.map((each) => [each, t(`overview.span.${each}`)])}
          chosen={span}
          onChange={onChange}
        />
      }
    >
      {sum("there") === 0 ? (
        <p className="text-sm text-muted">{t("overview.notBooked")}</p>
      ) : (
        <>
          <svg
            role="img"
            aria-label={`${heldText}${t("queue.comma")}${usedText}`}
            viewBox={`0 0 ${points.length} ${HEIGHT}`}
            preserveAspectRatio="none"
            className="h-32 w-full"
          >
            {points.map((point, index) => (
              <Bar key={point.at} point={point} x={index} span={span} />
            ))}
          </svg>
          <div aria-hidden className="mt-1 flex justify-between text-xs text-muted tabular-nums">
            {[0, points.length >> 1, points.length - 1].map((index) => (
              <span key={index}>{points[index] && formatTimeLabel(points[index].at, span)}</span>
            ))}
          </div>
          <ul className="mt-2 flex flex-wrap gap-x-4 gap-y-1 text-xs text-muted">
            <Mark className="bg-accent">{heldText}</Mark>
            <Mark className="bg-ok">{usedText}</Mark>
            <li>{measured}</li>
          </ul>
        </>
      )}
    </Card>
  );
}

function Mark({ className, children }: { className: string; children: string }) {
  return (
    <li className="flex items-center gap-1.5">
      <span aria-hidden className={cx("size-2.5 rounded-sm", className)} />
      {children}
    </li>
  );
}

function Bar({ point, x, span }: { point: Point; x: number; span: "day" | "month" }) {
  const { t } = useTranslation();
  const share = (hours: number) => (point.there > 0 ? Math.min(hours / point.there, 1) * HEIGHT : 0);
  const held = share(point.held);
  const used = share(point.used);
  const text = [
    formatTimeLabel(point.at, span),
    t("overview.heldShare", { share: formatShare(point.held, point.there) }),
    t("overview.usedShare", { share: formatShare(point.used, point.measured) }),
  ];
  return (
    <g>
      <title>{text.join(t("queue.comma"))}</title>
      <rect x={x + GAP / 2} width={1 - GAP} y={0} height={HEIGHT} className="fill-sunken" />
      <rect x={x + GAP / 2} width={1 - GAP} y={HEIGHT - held} height={held} className="fill-accent" />
      <rect x={x + GAP / 2} width={1 - GAP} y={HEIGHT - used} height={used} className="fill-ok" />
    </g>
  );
}

function formatTimeLabel(iso: string, span: "day" | "month"): string {
  if (span === "day") return formatShortTime(iso);
  return new Date(iso).toLocaleDateString(getLocale(), { month: "short", day: "numeric" });
}

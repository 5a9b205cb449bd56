import { Bookmark, Clock, Play, Wrench } from "lucide-react";
import type { ReactNode } from "react";
import type { TFunction } from "i18next";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { Span } from "@/api/types";
import { cx } from "@/lib/cx";
import { formatShortTime } from "@/lib/format";

type SpanKind = Span["kind"];

export const KINDS: SpanKind[] = ["held", "next", "reserved", "maintenance"];

/** A shape for each kind, so that colour is not needed. */
const ICON: Record<SpanKind, ReactNode> = {
  held: <Play aria-hidden />,
  next: <Clock aria-hidden />,
  reserved: <Bookmark aria-hidden />,
  maintenance: <Wrench aria-hidden />,
};

const LOOK: Record<SpanKind, string> = {
  held: "border-accent bg-accent text-white",
  next: "border-accent-line bg-surface text-accent-ink",
  reserved: "border-info-line bg-info-soft text-info-ink",
  maintenance: "border-warn-line bg-warn-soft text-warn-ink",
};
const UNSURE: Record<SpanKind, string> = { ...LOOK, held: "border-accent-line bg-accent-soft text-accent-ink" };

/** Returns whether a span is a reservation or maintenance, drawn behind tasks. */
export function isPlannedWindow({ kind }: Pick<Span, "kind">): boolean {
  return kind === "reserved" || kind === "maintenance";
}

export function formatSpanName(t: TFunction, { kind, name }: Pick<Span, "kind" | "name">): string {
  if (name) return name;
  return isPlannedWindow({ kind }) ? t(`timeline.kindOf.${kind}`) : t("queue.anonymous");
}

export function formatSpanTimes(t: TFunction, { from, to, sure }: Span): string {
  const end = to === null ? t("timeline.noEnd") : formatShortTime(to);
  return `${from === null ? t("timeline.noEnd") : formatShortTime(from)} – ${sure || to === null ? end : t("timeline.perhaps", { time: end })}`;
}

function getSpanStyle(kind: SpanKind, sure: boolean): string {
  return cx(
    "flex items-center gap-1 overflow-hidden rounded border px-1 text-xs whitespace-nowrap [&>svg]:size-3 [&>svg]:shrink-0",
    sure ? LOOK[kind] : UNSURE[kind],
    !sure && "border-dashed",
    kind === "next" && "border-2",
  );
}

/** Returns the stripes of reservations and maintenance. */
function buildStripes(kind: SpanKind) {
  if (!isPlannedWindow({ kind })) return {};
  const angle = kind === "reserved" ? 45 : -45;
  return {
    backgroundImage: `repeating-linear-gradient(${angle}deg, var(--${kind === "reserved" ? "info" : "warn"}-line) 0 1px, transparent 1px 7px)`,
  };
}

export function SpanBar({ span, left, width }: { span: Span; left: number; width: number }) {
  const { t } = useTranslation();
  const name = formatSpanName(t, span);
  const title = `${t(`timeline.kindOf.${span.kind}`)}: ${name}, ${formatSpanTimes(t, span)}`;
  const shared = {
    title,
    className: cx("absolute", getSpanStyle(span.kind, span.sure), isPlannedWindow(span) ? "inset-y-0" : "inset-y-1.5"),
    style: { left: `${left}%`, width: `${width}%`, minWidth: 4, ...buildStripes(span.kind) },
  };
  const inside = (
    <>
      {ICON[span.kind]}
      <span className={cx("truncate", isPlannedWindow(span) && "self-end")}>
        {!span.sure && "≈ "}
        {name}
      </span>
    </>
  );
  if (!span.taskId) return <span {...shared}>{inside}</span>;
  return (
    <Link to={`/training/${span.taskId}`} aria-label={title} {...shared}>
      {inside}
    </Link>
  );
}

export function Legend() {
  const { t } = useTranslation();
  return (
    <ul aria-label={t("timeline.legend")} className="flex flex-wrap gap-x-3 gap-y-1.5">
      {KINDS.map((kind) => (
        <li key={kind} className={getSpanStyle(kind, true)} style={buildStripes(kind)}>
          {ICON[kind]}
          {t(`timeline.kindOf.${kind}`)}
        </li>
      ))}
      <li className={getSpanStyle("held", false)}>≈ {t("timeline.unsure")}</li>
    </ul>
  );
}

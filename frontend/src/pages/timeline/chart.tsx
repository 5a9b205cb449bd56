import { useVirtualizer } from "@tanstack/react-virtual";
import { type CSSProperties, useRef } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { Span, TimelineEnvironment } from "@/api/types";
import { cx } from "@/lib/cx";
import { formatShortTime } from "@/lib/format";
import { isPlannedWindow, SpanBar } from "./span";
import { positionSpan, computePosition, buildRows, computeTicks, type Window } from "./window";

const ROW = 40;
const HEAD = 32;

interface ChartProps {
  environments: TimelineEnvironment[];
  window: Window;
  now: number;
}

/** Rows of environments below a time axis. Only visible rows are rendered. */
export function TimelineChart({ environments, window, now }: ChartProps) {
  const { t } = useTranslation();
  const box = useRef<HTMLDivElement>(null);
  const rows = buildRows(environments);
  // eslint-disable-next-line react-hooks/incompatible-library -- only this component reads the virtualizer
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    overscan: 10,
    scrollMargin: HEAD,
  });
  const present = computePosition(now, window);
  const hasPresent = present >= 0 && present <= 100;
  return (
    <div
      ref={box}
      role="group"
      tabIndex={0}
      aria-label={t("app.timeline")}
      className="relative max-h-[75vh] overflow-auto rounded-xl border bg-surface [--names:7rem] sm:[--names:14rem]"
    >
      <div className="relative min-w-[36rem]" style={{ height: virtual.getTotalSize() + HEAD }}>
        <div className="sticky top-0 z-20 flex border-b bg-sunken text-xs text-muted" style={{ height: HEAD }}>
          <div className="sticky left-0 z-10 w-(--names) shrink-0 border-r bg-sunken px-2 py-2 font-medium">
            {t("timeline.environment")}
          </div>
          <div className="relative min-w-0 flex-1 overflow-hidden tabular-nums">
            {computeTicks(window).map((at) => (
              <span
                key={at}
                className="absolute top-2 pl-1 whitespace-nowrap"
                style={{ left: `${computePosition(at, window)}%` }}
              >
                {formatShortTime(new Date(at).toISOString())}
              </span>
            ))}
            {hasPresent && (
              <span
                className="absolute top-1 -translate-x-1/2 rounded bg-bad px-1.5 py-0.5 font-medium text-white"
                style={{ left: `${present}%` }}
              >
                {t("timeline.now")}
              </span>
            )}
          </div>
        </div>
        <div aria-hidden className="absolute bottom-0 left-(--names) right-0" style={{ top: HEAD }}>
          {computeTicks(window).map((at) => (
            <EnvironmentRow key={at} left={computePosition(at, window)} className="border-line" />
          ))}
        </div>
        {virtual.getVirtualItems().map(({ index, key, start }) => {
          const row = rows[index];
          const style: CSSProperties = { height: ROW, transform: `translateY(${start}px)` };
          if (!row) return null;
          if ("zone" in row) {
            return (
              <div key={key} className="absolute inset-x-0 top-0 border-b bg-sunken/80" style={style}>
                <h3 className="sticky left-0 inline-block px-2 pt-2.5 text-sm font-semibold">
                  {row.zone}{" "}
                  <span className="font-normal text-muted">{t("environments.count", { count: row.count })}</span>
                </h3>
              </div>
            );
          }
          return (
            <div key={key} className="absolute inset-x-0 top-0 flex border-b" style={style}>
              <EnvironmentName environment={row.environment} />
              <SpanTrack environment={row.environment} window={window} />
            </div>
          );
        })}
        {hasPresent && (
          <div
            aria-hidden
            className="pointer-events-none absolute bottom-0 left-(--names) right-0"
            style={{ top: HEAD }}
          >
            <EnvironmentRow left={present} className="border-bad" />
          </div>
        )}
      </div>
    </div>
  );
}

function EnvironmentRow({ left, className }: { left: number; className: string }) {
  return <div className={cx("absolute inset-y-0 border-l", className)} style={{ left: `${left}%` }} />;
}

function EnvironmentName({ environment: { id, name, gpuCount, gpuType } }: { environment: TimelineEnvironment }) {
  const { t } = useTranslation();
  return (
    <div className="sticky left-0 z-10 w-(--names) shrink-0 border-r bg-surface px-2 py-0.5 text-sm">
      <Link to={`/environments/${id}`} title={name} className="block truncate hover:text-accent-ink hover:underline">
        {name}
      </Link>
      <div className="truncate text-xs text-muted">{gpuCount ? `${gpuCount}x ${gpuType}` : t("gpu.none")}</div>
    </div>
  );
}

function SpanTrack({ environment: { spans }, window }: { environment: TimelineEnvironment; window: Window }) {
  const depth = (span: Span) => (isPlannedWindow(span) ? 0 : span.kind === "held" ? 1 : 2);
  const fromBehind = spans.toSorted((a, b) => depth(a) - depth(b));
  return (
    <div className="relative min-w-0 flex-1 overflow-hidden">
      {fromBehind.map((span, index) => {
        const place = positionSpan(span, window);
        return place && <SpanBar key={index} span={span} {...place} />;
      })}
    </div>
  );
}

import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { Overview } from "@/api/types";
import { formatShortTime } from "@/lib/format";
import { Badge, type Tone } from "@/ui/badge";
import { Card } from "@/ui/card";

type Kind = Overview["capacity"][number]["kind"];

const TONE: Record<Kind, Tone> = {
  came: "ok",
  running: "ok",
  uncordoned: "ok",
  went: "idle",
  stopped: "idle",
  cordoned: "warn",
  unhealthy: "bad",
  reservedBegins: "info",
  reservedEnds: "idle",
  maintenanceBegins: "warn",
  maintenanceEnds: "idle",
};

/** Environments that were added, removed, reserved or taken out of service. */
export function CapacityEvents({ overview: { capacity } }: { overview: Overview }) {
  const { t } = useTranslation();
  return (
    <Card title={t("overview.capacity")} aside={<span className="text-sm text-muted">{t("overview.week")}</span>}>
      {capacity.length === 0 ? (
        <p className="text-sm text-muted">{t("overview.noEvents")}</p>
      ) : (
        <ul className="max-h-96 divide-y overflow-y-auto text-sm" tabIndex={0} aria-label={t("overview.capacity")}>
          {capacity.map((event, index) => (
            <li key={index} className="flex items-center gap-3 py-1.5">
              <Badge tone={TONE[event.kind]}>{t(`overview.event.${event.kind}`)}</Badge>
              <span className="min-w-0 flex-1 truncate" title={event.name}>
                {event.path ? (
                  <Link to={event.path} className="hover:text-accent-ink hover:underline">
                    {event.name}
                  </Link>
                ) : (
                  event.name
                )}
                {event.who && <span className="ml-2 text-xs text-muted">{event.who}</span>}
              </span>
              {!!event.gpus && (
                <span className="shrink-0 text-xs text-muted">{t("counted.gpus", { count: event.gpus })}</span>
              )}
              <time dateTime={event.at} className="shrink-0 text-xs text-muted tabular-nums">
                {formatShortTime(event.at)}
              </time>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

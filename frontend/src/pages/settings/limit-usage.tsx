import { useTranslation } from "react-i18next";
import { formatMeasurement } from "@/lib/format";
import { Badge } from "@/ui/badge";
import { Meter } from "@/ui/meter";

interface AmountProps {
  name: string;
  used: number;
  most: number | null;
  mark?: number;
  shown?: (value: number) => string;
  note?: string | undefined;
}

/** The usage of a limit. */
export function LimitUsage({ name, used, most, mark, shown = formatMeasurement, note }: AmountProps) {
  const { t } = useTranslation();
  const share = most === null ? 0 : most === 0 ? Number(used > 0) : used / most;
  const text = most === null ? t("limits.unlimited", { used: shown(used) }) : `${shown(used)} / ${shown(most)}`;
  const tone = share >= 1 ? "bad" : mark !== undefined && share >= mark ? "warn" : "ok";
  return (
    <div className="space-y-1">
      <div className="flex flex-wrap items-baseline justify-between gap-x-3">
        <span className="text-muted">{name}</span>
        <span className="flex items-center gap-2 tabular-nums">
          {text}
          {mark !== undefined && share >= mark && (
            <Badge tone={share >= 1 ? "bad" : "warn"}>
              {t(share >= 1 ? "limits.spent" : "limits.nearly", { percent: Math.round(share * 100) })}
            </Badge>
          )}
        </span>
      </div>
      {most !== null && (
        <Meter label={name} text={text} value={share} tone={tone} {...(mark !== undefined && { mark })} />
      )}
      {note && <div className="text-xs text-muted">{note}</div>}
    </div>
  );
}

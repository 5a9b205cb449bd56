import { Pause } from "lucide-react";
import { useTranslation } from "react-i18next";
import type { Schedule, ScheduleRun } from "@/api/types";
import { Badge, type Tone } from "@/ui/badge";

/** Whether a schedule goes on, was paused by a person, or was stopped by the platform. */
export function ScheduleStatus({ schedule }: { schedule: Pick<Schedule, "enabled" | "stopped"> }) {
  const { t } = useTranslation();
  if (schedule.stopped)
    return (
      <Badge tone="bad" title={schedule.stopped.message}>
        {t("schedule.state.stopped")}
      </Badge>
    );
  return schedule.enabled ? (
    <Badge tone="ok">{t("schedule.state.active")}</Badge>
  ) : (
    <Badge tone="warn">
      <Pause aria-hidden className="size-3.5" />
      {t("schedule.state.paused")}
    </Badge>
  );
}

const OUTCOME_TONES: Record<ScheduleRun["outcome"], Tone> = {
  pending: "info",
  created: "ok",
  skipped: "idle",
  failed: "bad",
};

export function OutcomeBadge({ outcome }: Pick<ScheduleRun, "outcome">) {
  const { t } = useTranslation();
  return <Badge tone={OUTCOME_TONES[outcome]}>{t(`schedule.outcome.${outcome}`)}</Badge>;
}

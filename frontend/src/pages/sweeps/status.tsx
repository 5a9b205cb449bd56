import { useTranslation } from "react-i18next";
import type { SweepItem, SweepTrial } from "@/api/types";
import { Badge, type Tone } from "@/ui/badge";

const SWEEP_TONES: Record<SweepItem["status"], Tone> = {
  running: "accent",
  paused: "warn",
  stopping: "warn",
  ended: "ok",
};

const TRIAL_TONES: Record<SweepTrial["status"], Tone> = {
  new: "info",
  active: "accent",
  paused: "warn",
  stopping: "warn",
  complete: "ok",
  pruned: "idle",
  failed: "bad",
  stopped: "idle",
};

export function SweepStatus({ status }: Pick<SweepItem, "status">) {
  const { t } = useTranslation();
  return <Badge tone={SWEEP_TONES[status]}>{t(`sweep.status.${status}`)}</Badge>;
}

export function TrialStatus({ status }: Pick<SweepTrial, "status">) {
  const { t } = useTranslation();
  return <Badge tone={TRIAL_TONES[status]}>{t(`sweep.trialStatus.${status}`)}</Badge>;
}

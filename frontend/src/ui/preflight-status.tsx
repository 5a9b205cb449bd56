import { useTranslation } from "react-i18next";
import type { PreflightBrief } from "@/api/types";
import { cx } from "@/lib/cx";
import { Badge, type Tone } from "./badge";

const TONE: Record<PreflightBrief["status"], Tone> = { queued: "warn", running: "accent", done: "idle", failed: "bad" };

export function PreflightStatus({ status }: Pick<PreflightBrief, "status">) {
  const { t } = useTranslation();
  return (
    <Badge tone={TONE[status]}>
      <span aria-hidden className={cx("size-1.5 rounded-full bg-current", status === "running" && "animate-pulse")} />
      {t(`preflight.statusOf.${status}`)}
    </Badge>
  );
}

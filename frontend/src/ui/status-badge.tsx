import { useTranslation } from "react-i18next";
import type { Status } from "@/api/types";
import { cx } from "@/lib/cx";
import { Badge, type Tone } from "./badge";

/** Colours of states. The server says which states there are and what follows which. */
const TONE: Record<Status, Tone> = {
  initializing: "info",
  queued: "warn",
  starting: "info",
  running: "accent",
  stopping: "warn",
  succeeded: "ok",
  failed: "bad",
  stopped: "idle",
};

export const STATUSES = Object.keys(TONE) as Status[];

export function getStatusTone(status: Status): Tone {
  return TONE[status];
}

export function StatusBadge({ status }: { status: Status }) {
  const { t } = useTranslation();
  return (
    <Badge tone={TONE[status]}>
      <span aria-hidden className={cx("size-1.5 rounded-full bg-current", status === "running" && "animate-pulse")} />
      {t(`status.${status}`)}
    </Badge>
  );
}

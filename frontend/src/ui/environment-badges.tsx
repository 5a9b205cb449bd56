import { useTranslation } from "react-i18next";
import type { Environment } from "@/api/types";
import { Badge, type Tone } from "./badge";

/** All states, including those of environments that the platform creates. */
export const ENVIRONMENT_STATUSES = [
  "creating",
  "starting",
  "running",
  "stopping",
  "stopped",
  "failed",
  "deleted",
  "unhealthy",
] as const;
type Status = (typeof ENVIRONMENT_STATUSES)[number];

const TONE: Record<Status, Tone> = {
  creating: "info",
  starting: "info",
  running: "ok",
  stopping: "warn",
  stopped: "idle",
  failed: "bad",
  deleted: "warn",
  unhealthy: "bad",
};

/** Returns the state to show: that of the lifecycle if there is one, unless the environment is unhealthy. */
export function getEnvironmentStatus(environment: Environment): Status {
  const hosted = environment.hosted;
  return environment.status === "unhealthy" || !hosted ? environment.status : hosted.state;
}

export function EnvironmentBadges({ environment }: { environment: Environment }) {
  const { t } = useTranslation();
  const status = getEnvironmentStatus(environment);
  return (
    <span className="inline-flex flex-wrap gap-1">
      <Badge tone={TONE[status]}>{t(`environments.statusOf.${status}`)}</Badge>
      {environment.cordoned && (
        <Badge tone="warn" title={t("environments.cordonedHint")}>
          {t("environments.cordoned")}
        </Badge>
      )}
    </span>
  );
}

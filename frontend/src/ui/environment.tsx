import { useTranslation } from "react-i18next";
import type { Environment } from "@/api/types";
import { Badge, type Tone } from "./badge";

const TONE: Record<Environment["status"], Tone> = { running: "ok", stopped: "idle", unhealthy: "bad" };

export function EnvironmentBadges({ environment }: { environment: Environment }) {
  const { t } = useTranslation();
  return (
    <span className="inline-flex flex-wrap gap-1">
      <Badge tone={TONE[environment.status]}>{t(`environments.statusOf.${environment.status}`)}</Badge>
      {environment.cordoned && (
        <Badge tone="warn" title={t("environments.cordonedHint")}>
          {t("environments.cordoned")}
        </Badge>
      )}
    </span>
  );
}

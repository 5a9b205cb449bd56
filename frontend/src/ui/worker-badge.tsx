import { useTranslation } from "react-i18next";
import type { Worker } from "@/api/types";
import { Badge, type Tone } from "./badge";

const TONE: Record<Worker["status"], Tone> = { online: "ok", suspect: "warn", lost: "bad", never: "idle" };

export const WORKER_STATUSES = Object.keys(TONE) as Worker["status"][];

export function WorkerBadge({ status }: Pick<Worker, "status">) {
  const { t } = useTranslation();
  return <Badge tone={TONE[status]}>{t(`workers.statusOf.${status}`)}</Badge>;
}

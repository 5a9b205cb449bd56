import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { warmMutation } from "@/api/environments";
import { isMaintainer, canCreate, meQuery } from "@/api/session";
import type { Environment } from "@/api/types";
import { formatBytes, formatTime } from "@/lib/format";
import { Card } from "@/ui/card";
import { toastError } from "@/ui/errors";

const CHOICES = { default: null, on: true, off: false } as const;
type Choice = keyof typeof CHOICES;

/** The state of the environment's warm process, and its switch. */
export function WarmProcess({ environment }: { environment: Environment }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const me = useQuery(meQuery).data;
  const { id, projectId, owner, standby } = environment;
  const change = useMutation({ ...warmMutation(client, id), onError: (error) => toastError(t, error) });
  const mayChange = isMaintainer(me, projectId) || (me?.username === owner && canCreate(me, projectId));
  const chosen = environment.warm == null ? "default" : environment.warm ? "on" : "off";
  return (
    <Card
      title={t("environments.warm")}
      aside={
        mayChange && (
          <select
            aria-label={t("environments.warm")}
            className="control w-auto"
            value={chosen}
            disabled={change.isPending}
            onChange={({ target }) => change.mutate(CHOICES[target.value as Choice])}
          >
            {(Object.keys(CHOICES) as Choice[]).map((choice) => (
              <option key={choice} value={choice}>
                {t(`environments.warmAs.${choice}`)}
              </option>
            ))}
          </select>
        )
      }
    >
      <p className="text-sm">
        {standby.state === "standing"
          ? t("environments.warmHolds", {
              memory: formatBytes(standby.memoryBytes ?? 0),
              until: standby.until ? formatTime(standby.until) : "–",
            })
          : t(`environments.warmIs.${standby.state}`)}
      </p>
      {standby.reason && <p className="mt-1 text-sm text-muted">{standby.reason.message}</p>}
      <p className="mt-1 text-xs text-muted">{standby.reason?.hint || t("environments.warmHint")}</p>
    </Card>
  );
}

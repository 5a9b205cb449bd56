import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Play, RotateCcw, Square, Trash2 } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { toast } from "@/ui/toast";
import { taskChanged } from "@/api/tasks";
import type { WorkerGroup } from "@/api/types";
import { deleteGroup, steerGroup, workersChanged } from "@/api/workers";
import { ApiError } from "@/api/errors";
import { Button } from "@/ui/button";
import { Confirm } from "@/ui/confirm";
import { toastError } from "@/ui/failure";
import { problemText } from "@/ui/form-dialog";
import { Configure } from "./configure";

const STEERING = ["start", "stop", "restart"] as const;
const ICON: Record<(typeof STEERING)[number], ReactNode> = {
  start: <Play />,
  stop: <Square />,
  restart: <RotateCcw />,
};
const DONE = { start: "groups.started", stop: "groups.stopped", restart: "groups.restarted" } as const;

/** What may be done is what the server says may be done. */
export function GroupActions({ group }: { group: WorkerGroup }) {
  const { id, name, effectiveWorldSize, allowedActions } = group;
  const { t } = useTranslation();
  const client = useQueryClient();
  const onError = (error: Error) => {
    const [first, ...others] = error instanceof ApiError ? error.problems : [];
    if (first) toast.error(problemText(first), { description: others.map(problemText).join("\n") });
    else toastError(t, error);
  };
  const onSettled = () => Promise.all([workersChanged(client), taskChanged(client)]);
  const steer = useMutation({
    mutationFn: (action: (typeof STEERING)[number]) => steerGroup(id, action),
    onError,
    onSuccess: (_, action) => toast.success(t(DONE[action])),
    onSettled,
  });
  const remove = useMutation({
    mutationFn: () => deleteGroup(id),
    onError,
    onSuccess: () => toast.success(t("groups.deleted")),
    onSettled,
  });
  return (
    <>
      {STEERING.filter((action) => allowedActions.includes(action)).map((action) => (
        <Confirm
          key={action}
          danger={action === "stop"}
          title={t(`groups.${action}Title`, { name })}
          description={t(`groups.${action}Hint`, { count: effectiveWorldSize })}
          action={t(`groups.${action}`)}
          onConfirm={() => steer.mutate(action)}
          trigger={
            <Button size="sm" disabled={steer.isPending}>
              {ICON[action]}
              {t(`groups.${action}`)}
            </Button>
          }
        />
      ))}
      {allowedActions.includes("edit") && <Configure group={group} />}
      {allowedActions.includes("delete") && (
        <Confirm
          danger
          title={t("groups.deleteTitle", { name })}
          description={t("groups.deleteHint")}
          action={t("groups.deleteAction")}
          onConfirm={() => remove.mutate()}
          trigger={
            <Button look="ghost" size="icon" aria-label={t("groups.delete", { name })} disabled={remove.isPending}>
              <Trash2 />
            </Button>
          }
        />
      )}
    </>
  );
}

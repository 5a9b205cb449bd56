import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Play, RotateCcw, Square, Trash2 } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { toast } from "@/ui/toast";
import { invalidateTask } from "@/api/tasks";
import type { WorkerGroup } from "@/api/types";
import { deleteGroup, runGroupAction, invalidateWorkers } from "@/api/workers";
import { ApiError } from "@/api/errors";
import { Button } from "@/ui/button";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { toastError } from "@/ui/errors";
import { formatProblems } from "@/ui/form-dialog";
import { GroupSettingsDialog } from "./settings-dialog";

const ACTIONS = ["start", "stop", "restart"] as const;
const ICON: Record<(typeof ACTIONS)[number], ReactNode> = {
  start: <Play />,
  stop: <Square />,
  restart: <RotateCcw />,
};
const DONE = { start: "groups.started", stop: "groups.stopped", restart: "groups.restarted" } as const;

/** Buttons for the actions that the server allows. */
export function GroupActions({ group }: { group: WorkerGroup }) {
  const { id, name, effectiveWorldSize, allowedActions } = group;
  const { t } = useTranslation();
  const client = useQueryClient();
  const onError = (error: Error) => {
    const [first, ...others] = error instanceof ApiError ? error.problems : [];
    if (first) toast.error(formatProblems(first), { description: others.map(formatProblems).join("\n") });
    else toastError(t, error);
  };
  const onSettled = () => Promise.all([invalidateWorkers(client), invalidateTask(client)]);
  const steer = useMutation({
    mutationFn: (action: (typeof ACTIONS)[number]) => runGroupAction(id, action),
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
      {ACTIONS.filter((action) => allowedActions.includes(action)).map((action) => (
        <ConfirmDialog
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
      {allowedActions.includes("edit") && <GroupSettingsDialog group={group} />}
      {allowedActions.includes("delete") && (
        <ConfirmDialog
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

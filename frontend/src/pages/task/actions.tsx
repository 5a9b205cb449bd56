import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { BookmarkPlus, ChartNoAxesCombined, Copy, Grid2x2Plus, RotateCcw, Square, Trash2 } from "lucide-react";
import { Fragment, type ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate } from "react-router";
import { toast } from "@/ui/toast";
import { canCreate, meQuery } from "@/api/session";
import { deleteTaskMutation, stopTaskMutation, taskKeys } from "@/api/tasks";
import { buildTensorboardAddress } from "@/api/tensorboards";
import type { Action, Task } from "@/api/types";
import { Button, ButtonLink } from "@/ui/button";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { toastError } from "@/ui/errors";
import { PauseButton, ResumeButton } from "./pause-buttons";
import { ResumePoint } from "./resume-point";
import { RetryButton } from "./retry-button";
import { ScriptDownload } from "./script-download";
import { useTaskAction } from "./use-task-action";

/** Buttons for the actions that the server allows. */
export function Actions({ task }: { task: Task }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const navigate = useNavigate();
  const mayCreate = canCreate(useQuery(meQuery).data, task.projectId);
  const stop = useTaskAction(task.taskId, stopTaskMutation(task.taskId), "task.stopDone");
  const remove = useMutation({
    ...deleteTaskMutation(task.taskId),
    onError: (error) => toastError(t, error),
    onSuccess: async () => {
      toast.success(t("task.deleteDone"));
      await navigate("/training");
      client.removeQueries({ queryKey: taskKeys.one(task.taskId) });
    },
  });
  const buttons: Record<Action, ReactNode> = {
    stop: (
      <ConfirmDialog
        key="stop"
        danger
        title={t("task.stopTitle")}
        description={<ResumePoint task={task.taskId} hint={t("task.stopHint")} />}
        action={t("task.stop")}
        onConfirm={() => stop.mutate()}
        trigger={
          <Button disabled={stop.isPending}>
            <Square />
            {t("task.stop")}
          </Button>
        }
      />
    ),
    pause: <PauseButton key="pause" id={task.taskId} />,
    resume: <ResumeButton key="resume" id={task.taskId} />,
    retry: (
      <RetryButton key="retry" id={task.taskId}>
        <RotateCcw />
        {t("task.retry")}
      </RetryButton>
    ),
    clone: (
      <Fragment key="clone">
        <ButtonLink to={`/training/create?from=${task.taskId}`}>
          <Copy />
          {t("task.clone")}
        </ButtonLink>
        <ButtonLink to={`/sweeps/new?from=${task.taskId}`} title={t("task.sweepHint")}>
          <Grid2x2Plus />
          {t("task.sweep")}
        </ButtonLink>
      </Fragment>
    ),
    delete: (
      <ConfirmDialog
        key="delete"
        danger
        title={t("task.deleteTitle")}
        description={t("task.deleteHint")}
        action={t("task.delete")}
        onConfirm={() => remove.mutate()}
        trigger={
          <Button disabled={remove.isPending}>
            <Trash2 />
            {t("task.delete")}
          </Button>
        }
      />
    ),
  };
  return (
    <>
      {(Object.keys(buttons) as Action[])
        .filter((action) => task.allowedActions.includes(action))
        .map((action) => buttons[action])}
      {mayCreate && (
        <>
          <ButtonLink to={`/templates/create?task=${task.taskId}`}>
            <BookmarkPlus />
            {t("task.saveTemplate")}
          </ButtonLink>
          <ButtonLink to={buildTensorboardAddress([task.taskId])} target="_blank">
            <ChartNoAxesCombined />
            TensorBoard
          </ButtonLink>
        </>
      )}
      <ScriptDownload id={task.taskId} />
    </>
  );
}

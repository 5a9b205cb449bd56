import { Pause, Play } from "lucide-react";
import { useTranslation } from "react-i18next";
import { pauseTaskMutation, resumeTaskMutation } from "@/api/tasks";
import { Button } from "@/ui/button";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { ResumePoint } from "./resume-point";
import { useTaskAction } from "./use-task-action";

export function PauseButton({ id }: { id: string }) {
  const { t } = useTranslation();
  const pause = useTaskAction(id, pauseTaskMutation(id), "task.pauseDone");
  return (
    <ConfirmDialog
      title={t("task.pauseTitle")}
      description={<ResumePoint task={id} hint={t("task.pauseHint")} />}
      action={t("task.pause")}
      onConfirm={() => pause.mutate()}
      trigger={
        <Button disabled={pause.isPending}>
          <Pause />
          {t("task.pause")}
        </Button>
      }
    />
  );
}

export function ResumeButton({ id }: { id: string }) {
  const { t } = useTranslation();
  const resume = useTaskAction(id, resumeTaskMutation(id), "task.resumeDone");
  return (
    <Button look="primary" disabled={resume.isPending} onClick={() => resume.mutate()}>
      <Play />
      {t("task.resume")}
    </Button>
  );
}

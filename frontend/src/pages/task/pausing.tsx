import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Pause, Play } from "lucide-react";
import { useTranslation } from "react-i18next";
import { toast } from "sonner";
import { pauseTask, resumeTask, taskChanged } from "@/api/tasks";
import { Button } from "@/ui/button";
import { Confirm } from "@/ui/confirm";
import { toastError } from "@/ui/failure";

export function PauseButton({ id }: { id: string }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const pause = useMutation({
    ...pauseTask(id),
    onError: (error) => toastError(t, error),
    onSuccess: () => {
      toast.success(t("task.pauseDone"));
      return taskChanged(client, id);
    },
  });
  return (
    <Confirm
      title={t("task.pauseTitle")}
      description={t("task.pauseHint")}
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
  const client = useQueryClient();
  const resume = useMutation({
    ...resumeTask(id),
    onError: (error) => toastError(t, error),
    onSuccess: () => {
      toast.success(t("task.resumeDone"));
      return taskChanged(client, id);
    },
  });
  return (
    <Button look="primary" disabled={resume.isPending} onClick={() => resume.mutate()}>
      <Play />
      {t("task.resume")}
    </Button>
  );
}

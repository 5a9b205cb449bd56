import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate } from "react-router";
import { retryTaskMutation } from "@/api/tasks";
import { Button } from "@/ui/button";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { toastError } from "@/ui/errors";
import { toast } from "@/ui/toast";
import { useCodeChoice } from "./code-choice";
import { ResumePoint } from "./resume-point";

interface RetryButtonProps {
  id: string;
  size?: "sm";
  children: ReactNode;
}

/** Retries from the newest checkpoint, after asking which code to run. */
export function RetryButton({ id, size, children }: RetryButtonProps) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const { code, field, onOpenChange } = useCodeChoice(id);
  const retry = useMutation({
    ...retryTaskMutation(id),
    onError: (error) => toastError(t, error),
    onSuccess: async ({ taskId }) => {
      toast.success(t("task.retryDone"));
      await navigate(`/training/${taskId}`);
    },
  });
  return (
    <ConfirmDialog
      title={t("task.retryTitle")}
      description={<ResumePoint task={id} hint={t("task.retryHint")} />}
      action={t("task.retry")}
      onConfirm={() => retry.mutate(code)}
      onOpenChange={onOpenChange}
      trigger={
        <Button size={size} disabled={retry.isPending}>
          {children}
        </Button>
      }
    >
      {field}
    </ConfirmDialog>
  );
}

import { useMutation, useQueryClient, type UseMutationOptions } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { toast } from "@/ui/toast";
import { invalidateTask } from "@/api/tasks";
import { toastError } from "@/ui/errors";

type Done = "task.stopDone" | "task.pauseDone" | "task.resumeDone" | "task.growDone" | "trackerRuns.syncBegun";

/** Returns a mutation that acts on a task, reports success or failure, and refreshes the task. */
export function useTaskAction<Answer>(id: string, asked: UseMutationOptions<Answer>, done: Done) {
  const { t } = useTranslation();
  const client = useQueryClient();
  return useMutation({
    ...asked,
    onError: (error) => toastError(t, error),
    onSuccess: () => {
      toast.success(t(done));
      return invalidateTask(client, id);
    },
  });
}

import { useMutation, useQueryClient, type UseMutationOptions } from "@tanstack/react-query";
import type { ParseKeys } from "i18next";
import { useTranslation } from "react-i18next";
import { toast } from "@/ui/toast";
import { invalidateTask } from "@/api/tasks";
import { toastError } from "@/ui/errors";

/** Returns a mutation that acts on a task, reports success (`done`: a text) or failure, and refreshes the task. */
export function useTaskAction<Answer>(id: string, asked: UseMutationOptions<Answer>, done: ParseKeys) {
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

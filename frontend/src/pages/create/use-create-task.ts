import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useRef } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate } from "react-router";
import { toast } from "@/ui/toast";
import { ApiError } from "@/api/errors";
import { createTask, invalidateTask } from "@/api/tasks";
import type { CreateRequest, Environment } from "@/api/types";
import { createIdempotencyKey } from "@/lib/idempotency-key";
import { toastError } from "@/ui/errors";
import { sumEnvironments } from "./aggregate";
import type { DraftStorage } from "./draft-storage";

/** Returns the idempotency key of a body: the same body gets the same key, so that repeating a lost request is safe. */
export function useIdempotencyKey(): (body: CreateRequest) => string {
  const sent = useRef<{ body: CreateRequest; key: string }>(null);
  return (body) => {
    if (sent.current?.body !== body) sent.current = { body, key: createIdempotencyKey() };
    return sent.current.key;
  };
}

/** Creates the task, confirms it, and opens its page. */
export function useCreateTask(chosen: Environment[], store: DraftStorage) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const navigate = useNavigate();
  return useMutation({
    ...createTask,
    onSuccess: async ({ taskId }) => {
      const sum = sumEnvironments(chosen);
      const description = sum.isDistributed
        ? t("create.successMulti", { nodes: sum.nodeCount, gpus: sum.totalGpus, count: sum.totalGpus })
        : t("create.successSingle", { name: chosen[0]?.name });
      toast.success(t("create.success"), { description });
      store.drop();
      void invalidateTask(client);
      await navigate(`/training/${taskId}`);
    },
    onError: (error) => {
      const [first, ...others] = error instanceof ApiError ? error.problems : [];
      if (!first) {
        toastError(t, error);
        return;
      }
      const description = others.length > 0 ? t("create.refused", { count: others.length + 1 }) : undefined;
      toast.error(first.message, { description });
    },
  });
}

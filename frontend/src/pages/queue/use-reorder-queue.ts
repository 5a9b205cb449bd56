import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { moveQueuedTask, type Queue, invalidateQueue, queueKeys, type QueueFilters } from "@/api/queue";
import { toastError } from "@/ui/errors";
import { type Move, applyMove } from "./order";

const MOVES = ["queue", "move"];

/**
 * Moves tasks. The page shows a move at once, and undoes it if the platform refuses. Moves are sent one after the
 * other.
 */
export function useReorderQueue(filters: QueueFilters) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const key = queueKeys.list(filters);
  return useMutation({
    mutationKey: MOVES,
    scope: { id: "queue" },
    mutationFn: ({ id, before }: Move) => moveQueuedTask(id, before),
    onMutate: async ({ id, before }) => {
      await client.cancelQueries({ queryKey: queueKeys.all });
      const was = client.getQueryData<Queue>(key);
      client.setQueryData<Queue>(key, (now) => now && { ...now, items: applyMove(now.items, id, before) });
      return { was };
    },
    onError: (error, _, context) => {
      client.setQueryData(key, context?.was);
      toastError(t, error);
    },
    onSettled: () => (client.isMutating({ mutationKey: MOVES }) > 1 ? undefined : invalidateQueue(client)),
  });
}

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { stopById, taskChanged } from "@/api/tasks";
import type { TaskBrief } from "@/api/types";
import { useTicks } from "@/lib/ticks";
import { describe } from "@/ui/failure";

/** How stopping one of the selected went; with its name, as the list may show it no longer. */
export interface Outcome {
  id: string;
  name: string;
  ok: boolean;
  message: string;
}

const AT_ONCE = 4;

export function mayStop({ allowedActions }: TaskBrief): boolean {
  return allowedActions.includes("stop");
}

/** The ticked tasks of a list, and stopping them all: each answers for itself. */
export function useBulkStop(tasks: TaskBrief[]) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [outcomes, setOutcomes] = useState<Outcome[]>([]);
  const ticks = useTicks(tasks.filter(mayStop).map(({ taskId }) => taskId));

  const stopOne = async ({ taskId: id, taskName: name }: TaskBrief) => {
    const outcome = await stopById(id).then(
      () => ({ ok: true, message: t("task.stopDone") }),
      (error: unknown) => ({ ok: false, message: describe(t, error) }),
    );
    setOutcomes((before) => [...before, { id, name, ...outcome }]);
  };
  const stop = useMutation({
    mutationFn: async () => {
      setOutcomes([]);
      const waiting = tasks.filter(({ taskId }) => ticks.selected.includes(taskId));
      const worker = async () => {
        for (let task = waiting.shift(); task; task = waiting.shift()) await stopOne(task);
      };
      await Promise.all(Array.from({ length: AT_ONCE }, worker));
    },
    onSettled: () => {
      ticks.clear();
      return taskChanged(client);
    },
  });

  return {
    ticks,
    outcomes,
    isPending: stop.isPending,
    stop: () => stop.mutate(),
    forget: () => setOutcomes([]),
  };
}

export type BulkStop = ReturnType<typeof useBulkStop>;

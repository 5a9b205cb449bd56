import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { isOver, stopById, taskChanged } from "@/api/tasks";
import type { TaskBrief } from "@/api/types";
import { useTicks } from "@/lib/ticks";
import { describe } from "@/ui/failure";

/** How stopping one of the selected went. */
export interface Outcome {
  ok: boolean;
  message: string;
}

const AT_ONCE = 4;

/** The ticked tasks of a list, and stopping them all: each answers for itself. */
export function useBulkStop(tasks: TaskBrief[]) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [outcomes, setOutcomes] = useState<ReadonlyMap<string, Outcome>>(new Map());
  const ticks = useTicks(tasks.filter((task) => !isOver(task)).map(({ taskId }) => taskId));

  const stopOne = async (id: string) => {
    const outcome = await stopById(id).then(
      () => ({ ok: true, message: t("task.stopDone") }),
      (error: unknown) => ({ ok: false, message: describe(t, error) }),
    );
    setOutcomes((before) => new Map(before).set(id, outcome));
  };
  const stop = useMutation({
    mutationFn: async () => {
      setOutcomes(new Map());
      const waiting = [...ticks.selected];
      const worker = async () => {
        for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) await stopOne(id);
      };
      await Promise.all(Array.from({ length: AT_ONCE }, worker));
    },
    onSettled: () => {
      ticks.clear();
      return taskChanged(client);
    },
  });

  return { ticks, outcomes, isPending: stop.isPending, stop: () => stop.mutate() };
}

export type BulkStop = ReturnType<typeof useBulkStop>;

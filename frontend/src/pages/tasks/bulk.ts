import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { isOver, stopById, taskChanged } from "@/api/tasks";
import type { TaskBrief } from "@/api/types";
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
  const [ticked, setTicked] = useState<ReadonlySet<string>>(new Set());
  const [outcomes, setOutcomes] = useState<ReadonlyMap<string, Outcome>>(new Map());
  const stoppable = tasks.filter((task) => !isOver(task)).map(({ taskId }) => taskId);
  const selected = stoppable.filter((id) => ticked.has(id));

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
      const waiting = [...selected];
      const worker = async () => {
        for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) await stopOne(id);
      };
      await Promise.all(Array.from({ length: AT_ONCE }, worker));
    },
    onSettled: () => {
      setTicked(new Set());
      return taskChanged(client);
    },
  });

  return {
    stoppable,
    selected,
    outcomes,
    isPending: stop.isPending,
    stop: () => stop.mutate(),
    toggle: (id: string) => {
      const next = new Set(ticked);
      if (!next.delete(id)) next.add(id);
      setTicked(next);
    },
    toggleAll: () => setTicked(new Set(selected.length === stoppable.length ? [] : stoppable)),
  };
}

export type BulkStop = ReturnType<typeof useBulkStop>;

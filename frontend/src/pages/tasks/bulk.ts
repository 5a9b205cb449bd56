import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { deleteById, stopById, taskChanged } from "@/api/tasks";
import type { TaskBrief } from "@/api/types";
import { useTicks } from "@/lib/ticks";
import { describe } from "@/ui/failure";

/** How it went for one of the selected; with its name, as the list may show it no longer. */
export interface Outcome {
  id: string;
  name: string;
  ok: boolean;
  message: string;
}

/** What can be done with several tasks together. */
const BULK = {
  stop: { ask: stopById, done: "task.stopDone" },
  delete: { ask: deleteById, done: "task.deleteDone" },
} as const;

export type BulkAction = keyof typeof BULK;

const ACTIONS = Object.keys(BULK) as BulkAction[];
const AT_ONCE = 4;

export function maySelect({ allowedActions }: TaskBrief): boolean {
  return ACTIONS.some((action) => allowedActions.includes(action));
}

/** The ticked tasks of a list, and stopping or deleting those of them that allow it: each answers for itself. */
export function useBulk(tasks: TaskBrief[]) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [outcomes, setOutcomes] = useState<Outcome[]>([]);
  const ticks = useTicks(tasks.filter(maySelect).map(({ taskId }) => taskId));
  /** The ticked ones that allow it. */
  const selected = (action: BulkAction) =>
    tasks.filter(({ taskId, allowedActions }) => ticks.selected.includes(taskId) && allowedActions.includes(action));

  const run = useMutation({
    mutationFn: async (action: BulkAction) => {
      const { ask, done } = BULK[action];
      setOutcomes([]);
      const waiting = selected(action);
      const worker = async () => {
        for (let task = waiting.shift(); task; task = waiting.shift()) {
          const { taskId: id, taskName: name } = task;
          const outcome = await ask(id).then(
            () => ({ ok: true, message: t(done) }),
            (error: unknown) => ({ ok: false, message: describe(t, error) }),
          );
          setOutcomes((before) => [...before, { id, name, ...outcome }]);
        }
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
    selected,
    outcomes,
    /** What the outcomes are of. */
    action: run.variables ?? "stop",
    isPending: run.isPending,
    run: (action: BulkAction) => run.mutate(action),
    forget: () => setOutcomes([]),
  };
}

export type Bulk = ReturnType<typeof useBulk>;

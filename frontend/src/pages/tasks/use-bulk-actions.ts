import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { requestDelete, requestStop, invalidateTask } from "@/api/tasks";
import type { TaskBrief } from "@/api/types";
import { useSelection } from "@/lib/use-selection";
import type { BulkResult } from "@/ui/bulk-results";
import { describeError } from "@/ui/errors";

/** Actions on several tasks. */
const BULK_ACTIONS = {
  stop: { ask: requestStop, done: "task.stopDone" },
  delete: { ask: requestDelete, done: "task.deleteDone" },
} as const;

export type BulkAction = keyof typeof BULK_ACTIONS;

const ACTIONS = Object.keys(BULK_ACTIONS) as BulkAction[];
const MAX_PARALLEL = 4;

export function canSelect({ allowedActions }: TaskBrief): boolean {
  return ACTIONS.some((action) => allowedActions.includes(action));
}

/**
 * Returns the selected tasks, and functions that stop or delete those that allow it. Each task has a result of its own.
 */
export function useBulkActions(tasks: TaskBrief[]) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [outcomes, setOutcomes] = useState<BulkResult[]>([]);
  const ticks = useSelection(tasks.filter(canSelect).map(({ taskId }) => taskId));
  /** Returns the selected tasks that allow an action. */
  const selected = (action: BulkAction) =>
    tasks.filter(({ taskId, allowedActions }) => ticks.selected.includes(taskId) && allowedActions.includes(action));

  const run = useMutation({
    mutationFn: async (action: BulkAction) => {
      const { ask, done } = BULK_ACTIONS[action];
      setOutcomes([]);
      const waiting = selected(action);
      const worker = async () => {
        for (let task = waiting.shift(); task; task = waiting.shift()) {
          const { taskId: id, taskName: name } = task;
          const outcome = await ask(id).then(
            () => ({ ok: true, message: t(done) }),
            (error: unknown) => ({ ok: false, message: describeError(t, error) }),
          );
          setOutcomes((before) => [...before, { id, name, ...outcome }]);
        }
      };
      await Promise.all(Array.from({ length: MAX_PARALLEL }, worker));
    },
    onSettled: () => {
      ticks.clear();
      return invalidateTask(client);
    },
  });

  return {
    ticks,
    selected,
    outcomes,
    /** The action that the results are of. */
    action: run.variables ?? "stop",
    isPending: run.isPending,
    run: (action: BulkAction) => run.mutate(action),
    forget: () => setOutcomes([]),
  };
}

export type BulkActions = ReturnType<typeof useBulkActions>;

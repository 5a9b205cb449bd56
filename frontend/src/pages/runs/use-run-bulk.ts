import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { changeRuns } from "@/api/runs";
import type { Run, RunBulkRequest } from "@/api/types";
import type { BulkDeed, BulkResult } from "@/ui/bulk-results";
import { toastError } from "@/ui/errors";

const DEEDS: Record<RunBulkRequest["action"], BulkDeed> = {
  addTags: "tag",
  removeTags: "untag",
  archive: "archive",
  unarchive: "unarchive",
  stop: "stop",
  delete: "delete",
};

/** The most runs that the platform changes in one request. */
const MAX_BULK = 1_000;

/** Returns functions that change many runs in one request, with a result for each. */
export function useRunBulk(onDone: () => void) {
  const { t } = useTranslation();
  const [outcomes, setOutcomes] = useState<BulkResult[]>([]);
  const [deed, setDeed] = useState<BulkDeed>("stop");
  const send = useMutation(changeRuns(useQueryClient()));

  const change = async (runs: Run[], request: Omit<RunBulkRequest, "taskIds">) => {
    const names = new Map(runs.map(({ task }) => [task.taskId, task.taskName]));
    const done = DEEDS[request.action];
    const results = await send.mutateAsync({ ...request, taskIds: [...names.keys()].slice(0, MAX_BULK) });
    setDeed(done);
    setOutcomes(
      results.map((result) => ({
        id: result.taskId,
        name: names.get(result.taskId) ?? result.taskId,
        ok: result.done,
        message: result.refusal?.message ?? t(`bulk.${done}.one`),
      })),
    );
    onDone();
  };
  return {
    outcomes,
    deed,
    isPending: send.isPending,
    /** Rejects where the whole request is refused. */
    change,
    /** Shows a refusal as a toast. */
    run: (runs: Run[], action: RunBulkRequest["action"]) =>
      void change(runs, { action }).catch((error: unknown) => toastError(t, error)),
    forget: () => setOutcomes([]),
  };
}

export type RunBulk = ReturnType<typeof useRunBulk>;

import type { Run, RunColumn, TaskBrief } from "@/api/types";
import { task } from "@/test/fixtures";

/** Returns a run with these values. */
export function buildRun(
  name: string,
  values: Run["values"] = {},
  over: Partial<Run> & { task?: Partial<TaskBrief> } = {},
): Run {
  const brief: TaskBrief = { ...task, taskId: `task-${name}`, taskName: name, totalSteps: null, estimatedEndAt: null };
  return { tags: [], note: "", archivedAt: null, values, ...over, task: { ...brief, ...over.task } };
}

/** Returns a column as the platform describes it. */
export function buildColumn(name: string, over: Partial<RunColumn> = {}): RunColumn {
  return {
    name,
    kind: "number",
    label: name,
    choices: [],
    group: "task",
    sortable: true,
    higherIsBetter: null,
    ...over,
  };
}

export const COLUMNS = [
  buildColumn("status", { kind: "choice" }),
  buildColumn("owner", { kind: "text" }),
  buildColumn("created", { kind: "time" }),
  buildColumn("duration", { kind: "duration" }),
  buildColumn("loss"),
  buildColumn("tag", { kind: "text", sortable: false }),
  buildColumn("note", { kind: "text", sortable: false }),
  buildColumn("gpuHours", { group: "cost" }),
  buildColumn("param.lr", { kind: "mixed", group: "parameter" }),
  buildColumn("metric.val_loss.last", { group: "metric", higherIsBetter: false }),
  buildColumn("metric.val_loss.best", { group: "metric", higherIsBetter: false }),
];

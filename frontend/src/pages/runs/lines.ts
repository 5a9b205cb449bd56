import type { Run, RunGroup } from "@/api/types";

/** A line of the table: a run, a group, or what is said below an open group. */
export type Line =
  | { kind: "run"; id: string; run: Run }
  | { kind: "group"; id: string; group: RunGroup; isOpen: boolean }
  | { kind: "loading"; id: string }
  | { kind: "rest"; id: string; group: RunGroup; shown: number };

/** The runs of an open group, as far as they are loaded. */
export interface GroupRuns {
  runs: Run[];
  isPending: boolean;
}

/** Returns the key of a group among those of one table. */
export const getGroupId = ({ key }: RunGroup) => JSON.stringify(key);

/** Returns the lines of runs without groups. */
export const listRuns = (runs: Run[]): Line[] => runs.map((run) => ({ kind: "run", id: run.task.taskId, run }));

/** Returns the lines of groups, with the runs of those that are open. */
export function listGroups(groups: RunGroup[], open: ReadonlyMap<string, GroupRuns>): Line[] {
  return groups.flatMap((group): Line[] => {
    const id = getGroupId(group);
    const inside = open.get(id);
    const head: Line = { kind: "group", id, group, isOpen: inside !== undefined };
    if (!inside) return [head];
    if (inside.isPending) return [head, { kind: "loading", id: `${id} loading` }];
    const runs = inside.runs.map((run): Line => ({ kind: "run", id: `${id} ${run.task.taskId}`, run }));
    const isCut = inside.runs.length < group.count;
    return [head, ...runs, ...(isCut ? [{ kind: "rest" as const, id: `${id} rest`, group, shown: runs.length }] : [])];
  });
}

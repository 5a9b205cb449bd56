import { isFinished } from "@/api/tasks";
import type { Status, Task, TaskEvent } from "@/api/types";

export interface Phase {
  state: Status;
  from: string;
  /** null: it has not ended. */
  to: string | null;
}

/** A phase before or in an attempt: waiting, starting, training, stopping. */
export interface PhaseInterval {
  attempt: number;
  phases: Phase[];
}

const PREFIX = "STATE_";
const WAITING: Status[] = ["initializing", "queued"];

/** Returns the phases of a task from its events, oldest first. Waiting belongs to the attempt that follows. */
export function buildPhases(task: Pick<Task, "createdAt" | "endedAt">, events: TaskEvent[]): PhaseInterval[] {
  const moves = events
    .filter(({ kind, code }) => kind === "state" && code.startsWith(PREFIX))
    .map(({ code, at, attempt }) => ({ state: code.slice(PREFIX.length).toLowerCase() as Status, at, attempt }));
  const begun = [{ state: "initializing" as Status, at: task.createdAt, attempt: 0 }, ...moves];
  const stretches: PhaseInterval[] = [];
  begun.forEach(({ state, at, attempt }, index) => {
    const next = begun[index + 1];
    if (!next && isFinished(task)) return; // final states take no time
    const number = WAITING.includes(state) ? attempt + 1 : attempt;
    let stretch = stretches.at(-1);
    if (stretch?.attempt !== number) stretches.push((stretch = { attempt: number, phases: [] }));
    stretch.phases.push({ state, from: at, to: next?.at ?? null });
  });
  return stretches;
}

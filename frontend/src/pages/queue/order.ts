import type { QueuedTask } from "@/api/types";

/** Returns the tasks among which a task can be moved: those of its project and priority class. */
export function listPeers(waiters: QueuedTask[], of: QueuedTask): QueuedTask[] {
  return waiters.filter(
    ({ taskId, projectId, priority }) => taskId !== null && projectId === of.projectId && priority === of.priority,
  );
}

/** Returns the queue after a move of `id` before `before` among its peers; null: to the end of them. */
export function applyMove(waiters: QueuedTask[], id: string, before: string | null): QueuedTask[] {
  const task = waiters.find(({ taskId }) => taskId === id);
  if (!task || id === before) return waiters;
  const peers = listPeers(waiters, task);
  const others = peers.filter((each) => each !== task);
  const at = before === null ? others.length : others.findIndex(({ taskId }) => taskId === before);
  if (at === -1) return waiters;
  const ordered = [...others.slice(0, at), task, ...others.slice(at)];
  return waiters.map((each) => {
    const place = peers.indexOf(each);
    const current = ordered[place];
    return current ? { ...current, number: each.number } : each;
  });
}

export interface Move {
  id: string;
  before: string | null;
}

/**
 * Returns the move by one position. Moving down puts the next task before this one, as the page may not show what
 * follows.
 */
export function moveOneStep(waiters: QueuedTask[], task: QueuedTask, by: "up" | "down"): Move | undefined {
  const peers = listPeers(waiters, task);
  const at = peers.indexOf(task);
  const [id, before] =
    by === "up" ? [task.taskId, peers[at - 1]?.taskId ?? null] : [peers[at + 1]?.taskId ?? null, task.taskId];
  return id !== null && before !== null ? { id, before } : undefined;
}

/**
 * Returns the move for dropping a task on another: before it when moving up, behind it when moving down. `last`: this
 * is the last page.
 */
export function moveToDropTarget(
  waiters: QueuedTask[],
  dragged: QueuedTask,
  on: QueuedTask,
  last: boolean,
): Move | undefined {
  const peers = listPeers(waiters, dragged);
  const [from, to] = [peers.indexOf(dragged), peers.indexOf(on)];
  if (dragged.taskId === null || to === -1 || from === to) return undefined;
  if (from > to) return { id: dragged.taskId, before: on.taskId };
  const next = peers[to + 1]?.taskId;
  if (next) return { id: dragged.taskId, before: next };
  return last ? { id: dragged.taskId, before: null } : { id: dragged.taskId, before: on.taskId };
}

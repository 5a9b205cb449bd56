import { useQuery } from "@tanstack/react-query";
import { queueQuery } from "@/api/queue";
import type { TaskBrief } from "@/api/types";

/** Returns the queue positions of waiting tasks. Nothing is requested if none waits. */
export function useQueuePositions(tasks: TaskBrief[]): ReadonlyMap<string, number> {
  const enabled = tasks.some(({ status, paused }) => status === "queued" && !paused);
  const queue = useQuery({ ...queueQuery({ page: 1 }), enabled }).data;
  const places = (enabled && queue?.items) || [];
  return new Map(places.flatMap(({ taskId, number }) => (taskId ? [[taskId, number] as const] : [])));
}

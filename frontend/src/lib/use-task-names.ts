import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { taskNamesQuery } from "@/api/tasks";

/** By id, without the tasks that whoever reads may not see. */
export type TaskNames = ReadonlyMap<string, string>;

/** Undefined until they are known. */
export function useTaskNames(ids: (string | null)[]): TaskNames | undefined {
  const asked = [...new Set(ids)].filter((id) => id !== null).sort();
  return useQuery({ ...taskNamesQuery(asked), enabled: asked.length > 0, placeholderData: keepPreviousData }).data;
}

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { taskNamesQuery } from "@/api/tasks";

/** Names by id, without tasks that the user may not see. */
export type TaskNames = ReadonlyMap<string, string>;

/** Returns the names of tasks; undefined until they are loaded. */
export function useTaskNames(ids: (string | null)[]): TaskNames | undefined {
  const request = [...new Set(ids)].filter((id) => id !== null).sort();
  return useQuery({ ...taskNamesQuery(request), enabled: request.length > 0, placeholderData: keepPreviousData }).data;
}

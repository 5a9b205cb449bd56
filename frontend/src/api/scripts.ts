import { http } from "./client";
import { ApiError } from "./errors";

export const TARGETS = ["shell", "slurm", "kubernetes", "torchrun", "compose"] as const;

/** An archive with the task's scripts, and the name that the server gave it. */
export async function downloadScripts(id: string, target: (typeof TARGETS)[number]) {
  const { data, error, response } = await http.GET("/api/v1/training-tasks/{task_id}/scripts", {
    params: { path: { task_id: id }, query: { target } },
    parseAs: "blob",
  });
  if (data === undefined) throw new ApiError(response.status, error);
  const named = /filename="?([^";]+)/.exec(response.headers.get("Content-Disposition") ?? "")?.[1];
  return { content: data, name: named ?? `${id}-${target}.tar.gz` };
}

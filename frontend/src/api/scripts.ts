import { http } from "./client";
import { ApiError } from "./errors";

export const TARGETS = ["shell", "slurm", "kubernetes", "torchrun", "compose"] as const;

/** Downloads an archive of the task's scripts. Returns it with the server's file name. */
export async function downloadScripts(id: string, target: (typeof TARGETS)[number]) {
  const { data, error, response } = await http.GET("/api/v1/training-tasks/{task_id}/scripts", {
    params: { path: { task_id: id }, query: { target } },
    parseAs: "blob",
  });
  if (data === undefined) throw new ApiError(response.status, error);
  const named = /filename="?([^";]+)/.exec(response.headers.get("Content-Disposition") ?? "")?.[1];
  return { content: data, name: named ?? `${id}-${target}.tar.gz` };
}

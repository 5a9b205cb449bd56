import type { Dataset } from "@/api/types";

/** The version to start with: a task waits for one that is being prepared, but one that failed cannot be used. */
export function usableVersion(dataset: Dataset | undefined): string | undefined {
  const usable = dataset?.versions.filter(({ status }) => status !== "failed") ?? [];
  return (usable.find(({ status }) => status === "ready") ?? usable[0])?.id;
}

import type { TaskFilters } from "@/api/tasks";
import type { Status } from "@/api/types";
import { readPageNumber, readFilterTexts } from "@/lib/url-filters";
import { STATUSES } from "@/ui/status-badge";

const TEXTS = ["framework", "zone", "owner", "environment", "search", "cause"] as const;

export function readFilters(params: URLSearchParams): TaskFilters {
  const status = params.getAll("status").filter((each): each is Status => STATUSES.includes(each as Status));
  const parameter = params.getAll("parameter").filter(Boolean);
  return {
    ...(status.length > 0 && { status }),
    ...(parameter.length > 0 && { parameter }),
    ...readFilterTexts(params, TEXTS),
    page: readPageNumber(params),
  };
}

export function isFiltered(filters: TaskFilters): boolean {
  return Object.keys(filters).some((name) => name !== "page");
}

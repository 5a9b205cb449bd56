/** What the form of a schedule holds, and the change that it sends. */
import type { Schedule, ScheduleChange } from "@/api/types";

export interface ScheduleDraft extends Pick<Schedule, "name" | "projectId" | "cron" | "zone" | "missed" | "overlap"> {
  /** Empty: none. */
  templateId: string;
}

const PLAIN = ["name", "cron", "zone", "missed", "overlap"] as const;

/**
 * Returns what differs from the schedule. Whoever changes what it runs becomes its owner, so the template and its values
 * are part of it only where they were changed; `values` is undefined where they were not.
 */
export function buildChange(
  schedule: Schedule,
  draft: ScheduleDraft,
  values: Readonly<Record<string, unknown>> | undefined,
): ScheduleChange {
  const changed = PLAIN.filter((name) => draft[name] !== schedule[name]).map((name) => [name, draft[name]]);
  const plain = Object.fromEntries(changed) as ScheduleChange;
  if (draft.templateId === "" || !values) return plain;
  return {
    ...plain,
    templateId: draft.templateId,
    values,
    ...(schedule.request !== null && { request: null }),
  };
}

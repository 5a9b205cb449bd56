import type { TFunction } from "i18next";
import type { Proposal } from "@/api/agents";

/** Returns in one sentence what a proposal wants. */
export function describeProposal(t: TFunction, { operation, plan, path, body, method }: Proposal): string {
  if (plan) return t("agents.wants.createTask", { target: plan.name });
  const url = new URL(path, "http://localhost");
  const [, id] = url.pathname.replace("/api/v1/", "").split("/");
  const named = [body.taskName, body.name, url.searchParams.get("path"), id].find(
    (value): value is string => typeof value === "string" && value !== "",
  );
  return t(`agents.wants.${operation as "createTask"}`, {
    target: named ?? "",
    defaultValue: `${operation} (${method} ${url.pathname})`,
  });
}

interface Failure {
  message?: unknown;
  hint?: unknown;
}

/** Returns the task that came of an approved proposal, and why its request failed. */
export function readOutcome({ status, result }: Proposal): { taskId: string | undefined; failures: string[] } {
  const data = result?.data as { taskId?: unknown } | undefined;
  const taskId = typeof data?.taskId === "string" ? data.taskId : undefined;
  if (status === null || status < 400) return { taskId, failures: [] };
  const errors = Array.isArray(result?.errors) ? (result.errors as Failure[]) : [];
  const texts = errors.map(({ message, hint }) => [message, hint].filter(Boolean).join(" "));
  return {
    taskId,
    failures: texts.length > 0 ? texts : [typeof result?.message === "string" ? result.message : `HTTP ${status}`],
  };
}

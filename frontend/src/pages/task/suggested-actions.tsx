import { useMutation, useQueryClient } from "@tanstack/react-query";
import type { ReactElement } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate } from "react-router";
import { toast } from "@/ui/toast";
import { cordonEnvironment } from "@/api/environments";
import { isFinished, restartTaskMutation, requestResume, requestStop, invalidateTask } from "@/api/tasks";
import type { SuggestedAction, Task } from "@/api/types";
import { Button, ButtonLink } from "@/ui/button";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { toastError } from "@/ui/errors";
import { useCodeChoice } from "./code-choice";
import { RetryButton } from "./retry-button";

interface SuggestedActionsProps {
  actions: SuggestedAction[];
  task: Task;
  onRank: (rank: number) => void;
}

/** Suggested actions: buttons for those that the platform can do, texts for others. */
export function SuggestedActions({ actions, task, onRank }: SuggestedActionsProps) {
  const { t } = useTranslation();
  const allowed = actions.filter(({ allowed }) => allowed);
  /** After the script was edited, a retry is next; it resumes from the newest checkpoint. */
  const retries = task.allowedActions.includes("retry") && allowed.some(({ code }) => code === "EDIT_SCRIPT");
  const shown = allowed
    .filter(({ code }) => !(retries && code === "RESTART_FROM_CHECKPOINT"))
    .map((action) => [action, renderActionButton(action, task, onRank)] as const);
  const buttons = shown.filter(([, button]) => button);
  const advice = shown.filter(([, button]) => !button);
  return (
    <>
      {advice.map(([action]) => (
        <p key={action.label} className="break-words">
          <span className="font-medium">{action.label}</span>
          {action.hint && <span className="text-muted"> {action.hint}</span>}
        </p>
      ))}
      {(buttons.length > 0 || retries) && (
        <div className="flex flex-wrap gap-2 pt-1">
          {retries && (
            <RetryButton id={task.taskId} size="sm">
              {t("task.why.retryEdited")}
            </RetryButton>
          )}
          {buttons.map(([action, button]) => (
            <span key={action.label} className="max-w-full">
              {button}
            </span>
          ))}
        </div>
      )}
    </>
  );
}

const text = (value: unknown) => (typeof value === "string" || typeof value === "number" ? String(value) : "");

/** Returns the page where an action is done, if it is another one. */
function getActionUrl({ code, params }: SuggestedAction, task: Task): string | undefined {
  const clone = (field: string, to = "") =>
    `/training/create?${new URLSearchParams({ from: task.taskId, ...(field && { field }), ...(to && { to }) }).toString()}`;
  switch (code) {
    case "SEE_TASK":
      return `/training/${text(params.task)}`;
    case "ADD_SECRET":
      return "/settings";
    case "PREFLIGHT": {
      const environments = task.nodes.map(({ environmentId }) => environmentId).filter(Boolean);
      return `/preflight/create?environments=${environments.join(",")}`;
    }
    case "RAISE_LIMIT":
    case "CHANGE_FIELD":
      return clone(text(params.field), text(params.to));
    case "LOWER_BATCH":
      return clone("hyperparameters.batchSize");
    case "CHOOSE_OTHERS":
      return clone("environments");
    default:
      return undefined;
  }
}

const ACTIONS_ON_PAGE = ["RESTART_FROM_CHECKPOINT", "WITHOUT_NODE", "USE_SPARE", "CORDON", "STOP", "RESUME"];

function renderActionButton(action: SuggestedAction, task: Task, onRank: (rank: number) => void): ReactElement | null {
  const page = getActionUrl(action, task);
  if (page)
    return (
      <ButtonLink size="sm" to={page} title={action.hint}>
        {action.label}
      </ButtonLink>
    );
  if (action.code === "SEE_LOG")
    return (
      <Button size="sm" onClick={() => onRank(Number(action.params.rank))}>
        {action.label}
      </Button>
    );
  return ACTIONS_ON_PAGE.includes(action.code) ? <ActionButton action={action} task={task} /> : null;
}

/** A button for an action of the platform, with a confirmation. */
function ActionButton({ action, task }: { action: SuggestedAction; task: Task }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const navigate = useNavigate();
  const { taskId } = task;
  const { code, field, onOpenChange } = useCodeChoice(taskId);
  const restarts = ["RESTART_FROM_CHECKPOINT", "WITHOUT_NODE", "USE_SPARE"].includes(action.code);
  const environment = text(action.params.environmentId);
  const step = useMutation({
    mutationFn: async (): Promise<string> => {
      if (action.code === "STOP") await requestStop(taskId);
      else if (action.code === "RESUME") await requestResume(taskId);
      else if (action.code === "CORDON") await cordonEnvironment(environment, true);
      else {
        const leaveOut = action.code === "RESTART_FROM_CHECKPOINT" ? [] : [environment];
        return (await restartTaskMutation(taskId, { leaveOut, useSpares: action.code === "USE_SPARE", code })).taskId;
      }
      return taskId;
    },
    onError: (error) => toastError(t, error),
    onSuccess: async (next) => {
      toast.success(t("task.why.done"));
      await invalidateTask(client, taskId);
      if (next !== taskId) await navigate(`/training/${next}`);
    },
  });
  return (
    <ConfirmDialog
      title={t("task.why.ask", { label: action.label })}
      description={action.hint}
      action={action.label}
      danger={action.code === "STOP"}
      onConfirm={() => step.mutate()}
      onOpenChange={restarts && isFinished(task) ? onOpenChange : undefined}
      trigger={
        <Button size="sm" disabled={step.isPending}>
          {action.label}
        </Button>
      }
    >
      {field}
    </ConfirmDialog>
  );
}

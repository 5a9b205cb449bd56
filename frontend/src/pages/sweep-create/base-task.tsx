import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { cloneQuery, tasksQuery } from "@/api/tasks";
import type { CreateRequest, Problem } from "@/api/types";
import { joinWords } from "@/lib/shell-words";
import { Button, ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";
import { toastError } from "@/ui/errors";
import { SearchBox } from "@/ui/filters";
import { MessageList } from "@/ui/message-list";
import { StatusBadge } from "@/ui/status-badge";
import { DefinitionList } from "@/ui/table";
import { pickTrialRequest } from "./draft";
import { FileField } from "./file-field";
import type { SectionProps } from "./section-props";

/** Tasks that are offered at a time. */
const SHOWN_TASKS = 8;

interface BaseTaskProps extends SectionProps {
  /** The task that was chosen; null: none, or the request is from elsewhere. */
  task: string | null;
  /** Problems of the request, which the form has no fields for. */
  problems: Problem[];
  onTask: (id: string, name: string, request: Partial<CreateRequest>) => void;
}

/** The task that each trial is: a task of before, or what a pasted file says. */
export function BaseTask({ draft, onChange, task, problems, onTask }: BaseTaskProps) {
  const { t } = useTranslation();
  const [choosing, setChoosing] = useState(false);
  const { request } = draft;
  const isChoosing = choosing || !request;
  return (
    <Card
      title={t("sweepForm.base")}
      aside={
        <div className="flex flex-wrap gap-2">
          {task && (
            <ButtonLink size="sm" look="ghost" to={`/training/create?from=${task}`}>
              {t("sweepForm.editTask")}
            </ButtonLink>
          )}
          {request && (
            <Button size="sm" onClick={() => setChoosing(!choosing)}>
              {t(choosing ? "app.cancel" : "sweepForm.chooseOther")}
            </Button>
          )}
        </div>
      }
    >
      <div className="space-y-4">
        {request && !choosing && <RequestFacts request={request} />}
        {isChoosing && (
          <TaskPicker
            onTask={(...chosen) => {
              setChoosing(false);
              onTask(...chosen);
            }}
          />
        )}
        {problems.length > 0 && (
          <MessageList
            notes={problems.map(({ field, error, message, hint }) => ({
              id: `${field}/${error}`,
              level: "warn",
              message,
              hint,
            }))}
          />
        )}
        <FileField draft={draft} onChange={onChange} />
      </div>
    </Card>
  );
}

function RequestFacts({ request }: { request: Partial<CreateRequest> }) {
  const { t } = useTranslation();
  const { entrypoint, environmentIds, distributedConfig, modelId, newEnvironments } = request;
  const script = entrypoint?.script ?? (entrypoint?.module && `-m ${entrypoint.module}`);
  const words = [...(entrypoint?.command ?? []), ...(entrypoint?.args ?? [])];
  const environments = distributedConfig?.nodeIds?.length ? distributedConfig.nodeIds : (environmentIds ?? []);
  const count = environments.length || (newEnvironments?.count ?? distributedConfig?.select?.nodes ?? 0);
  return (
    <DefinitionList
      facts={[
        ...(request.taskName ? [[t("sweepForm.taskName"), request.taskName] as [string, string]] : []),
        entrypoint
          ? [
              t("sweepForm.script"),
              <code key="script" className="font-mono text-xs break-all">
                {[script, joinWords(words)].filter(Boolean).join(" ") || "–"}
              </code>,
            ]
          : [t("sweepForm.model"), modelId ?? "–"],
        [
          t("sweepForm.environments"),
          environments.length > 0 && environments.length <= 4 ? environments.join(", ") : count > 0 ? count : "–",
        ],
      ]}
    />
  );
}

/** Tasks that were created before, newest first. */
function TaskPicker({ onTask }: { onTask: BaseTaskProps["onTask"] }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [search, setSearch] = useState("");
  const found = useQuery({
    ...tasksQuery({ ...(search && { search }), page: 1 }),
    placeholderData: keepPreviousData,
    refetchInterval: false,
  });
  const choose = useMutation({
    mutationFn: ({ taskId }: { taskId: string; taskName: string }) => client.query(cloneQuery(taskId)),
    onSuccess: (request, { taskId, taskName }) => onTask(taskId, taskName, pickTrialRequest(request)),
    onError: (error) => toastError(t, error),
  });
  const tasks = found.data?.items.slice(0, SHOWN_TASKS) ?? [];
  return (
    <div className="space-y-2">
      <p className="text-sm text-muted">{t("sweepForm.chooseTask")}</p>
      <SearchBox label={t("sweepForm.findTask")} value={search} onSettled={setSearch} />
      <ul aria-label={t("sweepForm.tasks")} className="divide-y rounded-lg border text-sm">
        {tasks.map((task) => (
          <li key={task.taskId}>
            <button
              type="button"
              disabled={choose.isPending}
              className="flex w-full items-center gap-3 px-3 py-2 text-left -outline-offset-2 hover:bg-sunken"
              onClick={() => choose.mutate(task)}
            >
              <span className="min-w-0 flex-1 truncate">{task.taskName}</span>
              <span className="hidden font-mono text-xs text-muted sm:inline">{task.taskId}</span>
              <StatusBadge status={task.status} />
            </button>
          </li>
        ))}
        {found.data && tasks.length === 0 && <li className="px-3 py-2 text-muted">{t("sweepForm.noTasks")}</li>}
      </ul>
    </div>
  );
}

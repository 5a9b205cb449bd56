import { Expand } from "lucide-react";
import { useTranslation } from "react-i18next";
import { growTaskMutation } from "@/api/tasks";
import type { Task } from "@/api/types";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { DefinitionList } from "@/ui/table";
import { ResumePoint } from "./resume-point";
import { useTaskAction } from "./use-task-action";

const NODE_STATES = ["free", "held", "running", "stopped", "unhealthy", "cordoned", "leftOut", "deleted"] as const;
type NodeState = (typeof NODE_STATES)[number];
const isNodeState = (status: string): status is NodeState => (NODE_STATES as readonly string[]).includes(status);

/** The nodes of an elastic task, why others are missing, and a button that grows it. */
export function Elastic({ task, elastic }: { task: Task; elastic: NonNullable<Task["elastic"]> }) {
  const { t } = useTranslation();
  const grow = useTaskAction(task.taskId, growTaskMutation(task.taskId), "task.growDone");
  const mayGrow = task.status === "running" && task.allowedActions.includes("stop") && elastic.largest > elastic.nodes;
  return (
    <Card title={t("task.elastic")}>
      <DefinitionList
        facts={[
          [t("task.nodesNow"), t("task.nodesOf", { nodes: elastic.nodes, all: elastic.maxNodes })],
          [t("task.sizes"), elastic.sizes.join(", ") || "–"],
          [t("task.globalBatch"), elastic.globalBatchSize ?? "–"],
          [t("task.microSteps"), elastic.accumulationSteps ?? "–"],
        ]}
      />
      {elastic.away.length > 0 && (
        <ul className="mt-3 space-y-1 text-sm" aria-label={t("task.away")}>
          {elastic.away.map(({ environmentId, name, status, taskId }) => (
            <li key={environmentId} className="flex justify-between gap-2">
              <span>{name}</span>
              <span className="text-muted">
                {isNodeState(status) ? t(`task.awayOf.${status}`) : status}
                {taskId && ` (${taskId})`}
              </span>
            </li>
          ))}
        </ul>
      )}
      {elastic.resizing && (
        <div className="mt-3">
          <Callout tone="info">{t("task.resizing")}</Callout>
        </div>
      )}
      {mayGrow && !elastic.resizing && (
        <div className="mt-3">
          <ConfirmDialog
            title={t("task.growTitle", { nodes: elastic.largest })}
            description={<ResumePoint task={task.taskId} hint={t("task.growHint")} />}
            action={t("task.grow")}
            onConfirm={() => grow.mutate()}
            trigger={
              <Button disabled={grow.isPending}>
                <Expand />
                {t("task.grow")}
              </Button>
            }
          />
        </div>
      )}
    </Card>
  );
}

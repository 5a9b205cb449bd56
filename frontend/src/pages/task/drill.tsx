import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Play, Square } from "lucide-react";
import { useTranslation } from "react-i18next";
import { createDrill, drillKeys, drillQuery, stopDrill } from "@/api/drills";
import { isRunning } from "@/api/preflights";
import { invalidateTask } from "@/api/tasks";
import type { Drill as Found, Task } from "@/api/types";
import { formatBytes } from "@/lib/format";
import { escapeName } from "@/lib/escape-name";
import { Callout, type Tone } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { LoadError, Loading, toastError } from "@/ui/errors";
import { PreflightStatus } from "@/ui/preflight-status";
import { DefinitionList } from "@/ui/table";

const TONE: Record<NonNullable<Found["verdict"]>["level"], Tone> = { pass: "ok", fail: "bad", unknown: "warn" };

/** The newest drill, which tests whether a task resumes after a rank dies, and a button that starts one. */
export function Drill({ task }: { task: Task }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const drill = useQuery({ ...drillQuery(task.drillId ?? ""), enabled: task.drillId !== null });
  const begin = useMutation({
    mutationFn: () => createDrill(task.taskId),
    onError: (error) => toastError(t, error),
    onSuccess: () => invalidateTask(client, task.taskId),
  });
  const found = task.drillId === null ? undefined : drill.data;
  const idle = task.drillId === null || (found !== undefined && !isRunning(found));
  return (
    <Card title={t("drill.title")} aside={found && <PreflightStatus status={found.status} />}>
      {task.drillId === null && <p className="text-sm text-muted">{t("drill.what")}</p>}
      {task.drillId !== null && drill.isPending && <Loading />}
      {task.drillId !== null && drill.isError && <LoadError error={drill.error} retry={() => void drill.refetch()} />}
      {found && <Result drill={found} />}
      <div className="mt-3 flex gap-2">
        {idle && task.allowedActions.length > 0 && (
          <Button disabled={begin.isPending} onClick={() => begin.mutate()}>
            <Play />
            {t(task.drillId === null ? "drill.begin" : "drill.again")}
          </Button>
        )}
        {found?.allowedActions.includes("stop") && <Stop id={found.id} />}
      </div>
    </Card>
  );
}

function Result({ drill }: { drill: Found }) {
  const { t } = useTranslation();
  const seconds = (value: number | null) => (value === null ? "–" : t("drill.seconds", { value }));
  return (
    <div className="space-y-3">
      {drill.verdict && (
        <Callout tone={TONE[drill.verdict.level]}>
          <p className="font-medium">{drill.verdict.message}</p>
          {drill.verdict.hint && <p className="mt-0.5">{drill.verdict.hint}</p>}
        </Callout>
      )}
      {!drill.verdict && drill.reason && <Callout tone="info">{drill.reason.message}</Callout>}
      {drill.rank !== null && (
        <DefinitionList
          facts={[
            [t("drill.killed"), t("drill.rankOn", { rank: drill.rank, node: drill.node })],
            [
              t("drill.checkpoint"),
              <span key="path" className="font-mono text-xs break-all">
                {escapeName(drill.checkpoint?.path ?? "")}
                {drill.checkpoint?.sizeBytes != null && ` (${formatBytes(drill.checkpoint.sizeBytes)})`}
              </span>,
            ],
            [t("drill.killedStep"), drill.killedStep ?? "–"],
            [t("drill.resumedStep"), drill.resumedStep ?? "–"],
            [t("drill.stepsLost"), drill.stepsLost ?? "–"],
            [t("drill.restartSeconds"), seconds(drill.restartSeconds)],
            [t("drill.resumedSeconds"), seconds(drill.resumedSeconds)],
          ]}
        />
      )}
    </div>
  );
}

function Stop({ id }: { id: string }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const stop = useMutation({
    mutationFn: () => stopDrill(id),
    onError: (error) => toastError(t, error),
    onSettled: () => client.invalidateQueries({ queryKey: drillKeys.one(id) }),
  });
  return (
    <Button disabled={stop.isPending} onClick={() => stop.mutate()}>
      <Square />
      {t("task.stop")}
    </Button>
  );
}

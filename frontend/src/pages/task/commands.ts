import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { pauseTaskMutation, resumeTaskMutation, stopTaskMutation } from "@/api/tasks";
import type { Task } from "@/api/types";
import { type Command, usePageCommands } from "@/app/commands";
import { toast } from "@/ui/toast";
import { useTaskAction } from "./use-task-action";

/** Registers the palette's commands of a task's page: allowed actions, and copying its id. */
export function useTaskCommands(task: Task): void {
  const { t } = useTranslation();
  const { taskId: id, taskName: name, allowedActions } = task;
  const allowed = allowedActions.join();
  const { mutate: stop } = useTaskAction(id, stopTaskMutation(id), "task.stopDone");
  const { mutate: pause } = useTaskAction(id, pauseTaskMutation(id), "task.pauseDone");
  const { mutate: resume } = useTaskAction(id, resumeTaskMutation(id), "task.resumeDone");
  const commands = useMemo(() => {
    const all: Command[] = [
      { id: "stop", label: t("task.stop"), also: "stop", confirm: t("task.stopTitle"), run: () => stop() },
      { id: "pause", label: t("task.pause"), also: "pause", confirm: t("task.pauseTitle"), run: () => pause() },
      { id: "resume", label: t("task.resume"), also: "resume", run: () => resume() },
    ];
    const copy = async () => {
      await navigator.clipboard.writeText(id);
      toast.success(t("app.copied"));
    };
    return [
      ...all.filter((command) => allowed.split(",").includes(command.id)),
      ...("clipboard" in navigator
        ? [{ id: "copy", label: t("palette.copyId"), detail: id, also: "copy id", run: copy }]
        : []),
    ].map((command) => ({ detail: name, ...command }));
  }, [t, id, name, allowed, stop, pause, resume]);
  usePageCommands(commands);
}

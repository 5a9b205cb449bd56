import { useTranslation } from "react-i18next";
import type { Task } from "@/api/types";
import { Callout } from "@/ui/badge";
import Terminal from "@/ui/terminal";

/** A shell next to a rank: on its node, with its variables, in its working directory. */
export default function RankTerminal({
  task,
  rank,
  onRank,
}: {
  task: Task;
  rank: number;
  onRank: (rank: number) => void;
}) {
  const { t } = useTranslation();
  return (
    <div className="space-y-3">
      <div className="flex flex-wrap items-center gap-3 text-sm">
        <label className="flex items-center gap-2">
          rank
          <select className="control w-auto" value={rank} onChange={({ target }) => onRank(Number(target.value))}>
            {task.ranks.map((each) => (
              <option key={each.rank} value={each.rank}>
                {each.rank}
              </option>
            ))}
          </select>
        </label>
        <span className="text-muted">{t("terminal.beside", { rank })}</span>
      </div>
      {task.status === "running" ? (
        <Terminal
          key={rank}
          path={`/api/v1/training-tasks/${task.taskId}/ranks/${rank}/channel`}
          label={t("terminal.ofRank", { rank })}
        />
      ) : (
        <Callout tone="info">{t("terminal.notRunning")}</Callout>
      )}
    </div>
  );
}

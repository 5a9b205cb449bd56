import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { WorkerGroup } from "@/api/types";
import { Badge } from "@/ui/badge";
import { Card } from "@/ui/card";
import { formatProblems } from "@/ui/form-dialog";
import { StatusBadge } from "@/ui/status-badge";
import { MessageList } from "@/ui/message-list";
import { DefinitionList } from "@/ui/table";
import { TextLink } from "@/ui/text-link";
import { WorkerBadge } from "@/ui/worker-badge";
import { GroupActions } from "./actions";

/** Longer groups are shown in the list of workers. */
const SHOWN = 32;

export function GroupCard({ group }: { group: WorkerGroup }) {
  const { t } = useTranslation();
  const { name, task, workers, problems, warnings, effectiveWorldSize } = group;
  return (
    <Card
      id={group.id}
      title={
        <span className="flex flex-wrap items-center gap-2">
          {name}
          {task && (
            <Link to={`/training/${task.id}`} className="flex items-center gap-2 text-sm font-normal hover:underline">
              <StatusBadge status={task.status} />
              {task.name}
            </Link>
          )}
        </span>
      }
      aside={
        <span className="flex flex-wrap items-center gap-2">
          <GroupActions group={group} />
        </span>
      }
    >
      <div className="space-y-4">
        {workers.length > 0 && problems.length > 0 && <p className="text-sm font-medium">{t("groups.problems")}</p>}
        <MessageList
          notes={[
            ...(workers.length > 0 ? problems : []).map((problem, index) => ({
              id: `problem ${index}`,
              level: "fail" as const,
              message: formatProblems(problem),
            })),
            ...warnings.map(({ message, hint }, index) => ({
              id: `warning ${index}`,
              level: "warn" as const,
              message,
              hint,
            })),
          ]}
        />
        <DefinitionList
          className="sm:grid sm:grid-cols-2 sm:gap-x-8 sm:gap-y-1.5 sm:space-y-0"
          facts={[
            [t("groups.masterAddress"), group.masterAddress || "–"],
            [t("groups.worldSize"), t("groups.worldSizeOf", { size: effectiveWorldSize, count: workers.length })],
            [t("groups.masterPort"), group.masterPort],
            [
              t("groups.backend"),
              group.effectiveBackend === group.backend
                ? group.backend
                : t("groups.backendWithoutGpu", { used: group.effectiveBackend, set: group.backend }),
            ],
            [t("groups.script"), <span className="font-mono text-xs break-all">{group.script || "–"}</span>],
            [t("groups.maxRestarts"), group.maxRestarts],
          ]}
        />
        {workers.length > 0 ? (
          <Members group={group} />
        ) : (
          <p className="text-sm text-muted">
            {t("groups.noWorkers")} <TextLink to="/workers">{t("groups.goMove")}</TextLink>
          </p>
        )}
      </div>
    </Card>
  );
}

function Members({ group: { id, name, workers } }: { group: WorkerGroup }) {
  const { t } = useTranslation();
  return (
    <div>
      <div
        role="group"
        tabIndex={0}
        aria-label={t("groups.members", { name })}
        className="max-h-96 overflow-auto rounded-lg border"
      >
        <table className="w-full text-left text-sm">
          <thead className="sticky top-0 bg-sunken text-xs text-muted">
            <tr className="*:px-1.5 *:py-1.5 *:font-medium sm:*:px-3 *:whitespace-nowrap">
              <th>{t("workers.id")}</th>
              <th className="text-right">RANK</th>
              <th className="text-right">LOCAL_RANK</th>
              <th className="text-right">NODE_RANK</th>
              <th>{t("workers.status")}</th>
            </tr>
          </thead>
          <tbody className="divide-y">
            {workers.slice(0, SHOWN).map((worker) => (
              <tr key={worker.id} className="*:px-1.5 *:py-1.5 sm:*:px-3">
                <td className="font-medium whitespace-nowrap">
                  <Link to={`/workers/${worker.id}`} className="hover:underline">
                    {worker.id}
                  </Link>
                </td>
                {worker.rank == null ? (
                  <td colSpan={3} className="text-right">
                    <Badge title={t("groups.spareHint")}>{t("groups.spare")}</Badge>
                  </td>
                ) : (
                  [worker.rank, worker.localRank, worker.nodeRank].map((rank, index) => (
                    <td key={index} className="text-right tabular-nums">
                      {rank}
                    </td>
                  ))
                )}
                <td>
                  <WorkerBadge status={worker.status} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Link to={`/workers?group=${id}`} className="mt-2 inline-block text-sm text-accent-ink hover:underline">
        {t("groups.more", { count: workers.length })}
      </Link>
    </div>
  );
}

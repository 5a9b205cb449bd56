import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Trash2 } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { Worker } from "@/api/types";
import { deleteWorker, invalidateWorkers } from "@/api/workers";
import { formatDuration } from "@/lib/format";
import { useNow } from "@/lib/hooks";
import type { Selection } from "@/lib/use-selection";
import { Button } from "@/ui/button";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { toastError } from "@/ui/errors";
import { MEDIUM_COLUMN, ROW, Table, CHECKBOX_CELL, SelectAllCheckbox, WIDE_COLUMN } from "@/ui/table";
import { WorkerBadge } from "@/ui/worker-badge";
import { EnvironmentPreview } from "./environment-preview";
import { GpuUsageCell, HostUsageCell, ProcessCell, RankCell } from "./worker-cells";

interface WorkerTableProps {
  workers: Worker[];
  ticks: Selection;
  /** When the server answered, by the browser's clock. */
  seenAt: number;
  ordering: string | undefined;
  onOrder: (ordering: string) => void;
  onNode: (node: string) => void;
}

export function WorkerTable({ workers, ticks, seenAt, ordering, onOrder, onNode }: WorkerTableProps) {
  const { t } = useTranslation();
  const now = useNow();
  return (
    <Table
      label={t("workers.title")}
      ordering={ordering}
      onOrder={onOrder}
      columns={[
        { label: <SelectAllCheckbox ticks={ticks} label={t("workers.selectAll")} />, className: CHECKBOX_CELL },
        { label: t("workers.id"), order: "id" },
        { label: t("workers.status"), order: "lastHeartbeatAt" },
        { label: t("workers.group"), className: MEDIUM_COLUMN, order: "group" },
        { label: t("workers.rank"), className: MEDIUM_COLUMN },
        { label: t("workers.process"), className: MEDIUM_COLUMN },
        { label: t("workers.usage"), className: WIDE_COLUMN },
        { label: t("workers.host"), className: WIDE_COLUMN },
        { label: "" },
      ]}
    >
      {workers.map((worker) => (
        <tr key={worker.id} className={ROW}>
          <td className={CHECKBOX_CELL}>
            <input
              type="checkbox"
              aria-label={t("workers.select", { id: worker.id })}
              disabled={!ticks.ids.includes(worker.id)}
              checked={ticks.selected.includes(worker.id)}
              onChange={() => ticks.toggle(worker.id)}
            />
          </td>
          <td>
            <Link to={`/workers/${worker.id}`} className="font-medium break-words hover:underline">
              {worker.id}
            </Link>
            <div className="text-xs text-muted">
              <button
                type="button"
                aria-label={t("workers.onlyNode", { name: worker.node })}
                className="rounded hover:text-accent-ink hover:underline"
                onClick={() => onNode(worker.node)}
              >
                {worker.node}
              </button>
              {" · "}
              {worker.gpu == null ? t("workers.cpu") : t("workers.gpu", { number: worker.gpu })}
            </div>
            <div className="mt-1 space-y-1 text-xs text-muted md:hidden">
              <div>
                {worker.group?.name ?? t("workers.noGroup")}
                {worker.rank != null && ` · rank ${worker.rank}`}
              </div>
              <ProcessCell worker={worker} />
            </div>
          </td>
          <td className="whitespace-nowrap">
            <WorkerBadge status={worker.status} />
            {worker.heartbeatAgeSeconds != null && (
              <div className="mt-1 text-xs text-muted tabular-nums" title={worker.lastHeartbeatAt ?? undefined}>
                <Age seconds={worker.heartbeatAgeSeconds + (now - seenAt) / 1000} />
              </div>
            )}
          </td>
          <td className={MEDIUM_COLUMN}>
            {worker.group ? (
              <Link to={`/workers/groups#${worker.group.id}`} className="text-accent-ink hover:underline">
                {worker.group.name}
              </Link>
            ) : (
              <span className="text-muted">{t("workers.noGroup")}</span>
            )}
          </td>
          <td className={`${MEDIUM_COLUMN} tabular-nums`}>
            <RankCell worker={worker} />
          </td>
          <td className={MEDIUM_COLUMN}>
            <ProcessCell worker={worker} />
          </td>
          <td className={WIDE_COLUMN}>
            <GpuUsageCell worker={worker} />
          </td>
          <td className={`${WIDE_COLUMN} text-xs whitespace-nowrap text-muted tabular-nums`}>
            <HostUsageCell worker={worker} />
          </td>
          <td className="w-px">
            <span className="flex justify-end gap-1">
              <EnvironmentPreview id={worker.id} />
              {worker.allowedActions.includes("delete") && <DeleteWorker id={worker.id} />}
            </span>
          </td>
        </tr>
      ))}
    </Table>
  );
}

function Age({ seconds }: { seconds: number }) {
  const { t } = useTranslation();
  return seconds < 1 ? t("workers.heartbeatNow") : t("workers.heartbeat", { age: formatDuration(t, seconds) });
}

function DeleteWorker({ id }: { id: string }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const remove = useMutation({
    mutationFn: () => deleteWorker(id),
    onError: (error) => toastError(t, error),
    onSettled: () => invalidateWorkers(client),
  });
  return (
    <ConfirmDialog
      danger
      title={t("workers.deleteTitle", { id })}
      description={t("workers.deleteHint")}
      action={t("workers.deleteAction")}
      onConfirm={() => remove.mutate()}
      trigger={
        <Button look="ghost" size="icon" aria-label={t("workers.delete", { id })} disabled={remove.isPending}>
          <Trash2 />
        </Button>
      }
    />
  );
}

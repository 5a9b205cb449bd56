import { useQuery } from "@tanstack/react-query";
import { ArrowDown, ArrowUp, GripVertical } from "lucide-react";
import { type DragEvent, useLayoutEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { QueueFilters } from "@/api/queue";
import type { QueuedTask } from "@/api/types";
import { meQuery } from "@/api/session";
import { cx } from "@/lib/cx";
import { formatAge, formatDateTime } from "@/lib/format";
import { useNow } from "@/lib/hooks";
import { Badge } from "@/ui/badge";
import { Button } from "@/ui/button";
import { PriorityBadge } from "@/ui/priority-badge";
import { MEDIUM_COLUMN, ROW, Table, WIDE_COLUMN } from "@/ui/table";
import { EstimatedStart, WaitReason } from "./wait-facts";
import { useReorderQueue } from "./use-reorder-queue";
import { moveToDropTarget, type Move, listPeers, moveOneStep } from "./order";

interface QueueTableProps {
  waiters: QueuedTask[];
  filters: QueueFilters;
  /** This is the last page. */
  last: boolean;
}

const DIRECTIONS = ["up", "down"] as const;
type Direction = (typeof DIRECTIONS)[number];

export function QueueTable({ waiters, filters, last }: QueueTableProps) {
  const { t } = useTranslation();
  const me = useQuery(meQuery).data;
  const now = useNow();
  const moving = useReorderQueue(filters);
  const [dragged, setDragged] = useState<QueuedTask>();
  const [over, setOver] = useState<string>();
  const table = useRef<HTMLDivElement>(null);
  const pressed = useRef<{ id: string; way: Direction }>(undefined);
  const project = (id: string | null) => me?.projects.find((each) => each.id === id)?.name ?? id ?? "–";
  const maintained = (waiter: QueuedTask) =>
    waiter.mayMove && waiter.taskId !== null && listPeers(waiters, waiter).length > 1;
  const movable = waiters.some(maintained);

  /** Keeps the focus on the buttons of a moved row. */
  useLayoutEffect(() => {
    if (!pressed.current) return;
    const { id, way } = pressed.current;
    const [wanted, other] = [way, DIRECTIONS.find((each) => each !== way)].map((each) =>
      table.current?.querySelector<HTMLButtonElement>(`[data-move="${id} ${each}"]:not(:disabled)`),
    );
    (wanted ?? other)?.focus();
    pressed.current = undefined;
  }, [waiters]);

  const move = (change: Move | undefined) => change && moving.mutate(change);
  const press = (waiter: QueuedTask, way: Direction) => {
    if (waiter.taskId) pressed.current = { id: waiter.taskId, way };
    move(moveOneStep(waiters, waiter, way));
  };
  const accepts = (waiter: QueuedTask) => dragged !== undefined && listPeers(waiters, dragged).includes(waiter);
  const dragging = (waiter: QueuedTask) => ({
    draggable: true,
    onDragStart: (event: DragEvent) => {
      event.dataTransfer.effectAllowed = "move";
      event.dataTransfer.setData("text/plain", waiter.taskId ?? "");
      setDragged(waiter);
    },
    onDragEnd: () => {
      setDragged(undefined);
      setOver(undefined);
    },
    onDragOver: (event: DragEvent) => {
      if (!accepts(waiter)) return;
      event.preventDefault();
      setOver(waiter.taskId ?? undefined);
    },
    onDrop: (event: DragEvent) => {
      event.preventDefault();
      if (dragged && accepts(waiter)) move(moveToDropTarget(waiters, dragged, waiter, last));
    },
  });

  return (
    <div ref={table}>
      {movable && <p className="mb-2 text-sm text-muted">{t("queue.moveHint")}</p>}
      <Table
        label={t("queue.title")}
        columns={[
          { label: t("queue.number") },
          { label: t("queue.task") },
          { label: t("queue.project"), className: MEDIUM_COLUMN },
          { label: t("queue.class"), className: MEDIUM_COLUMN },
          { label: t("queue.asks"), className: MEDIUM_COLUMN },
          { label: t("queue.since"), className: WIDE_COLUMN },
          { label: t("queue.why"), className: MEDIUM_COLUMN },
          { label: t("queue.begins"), className: MEDIUM_COLUMN },
          ...(movable ? [{ label: <span className="sr-only">{t("queue.move")}</span> }] : []),
        ]}
      >
        {waiters.map((waiter) => {
          const { number, taskId, taskName, projectId, owner, priority, asks, since } = waiter;
          const mayMove = maintained(waiter);
          return (
            <tr
              key={taskId ?? `number-${number}`}
              className={cx(
                ROW,
                dragged?.taskId === taskId && "opacity-50",
                over === taskId && "outline-2 -outline-offset-2 outline-accent-line",
              )}
              {...(mayMove && dragging(waiter))}
            >
              <td className="w-px tabular-nums whitespace-nowrap">
                <span className="inline-flex items-center gap-1">
                  {mayMove && <GripVertical aria-hidden className="-ml-2 size-4 cursor-grab text-muted" />}
                  {number}
                </span>
              </td>
              <td>
                {taskId ? (
                  <Link
                    to={`/training/${taskId}`}
                    className="font-medium break-words hover:text-accent-ink hover:underline"
                  >
                    {taskName}
                  </Link>
                ) : (
                  <span className="text-muted">{t("queue.anonymous")}</span>
                )}
                <span className="ml-2 inline-flex gap-1 align-middle">
                  {waiter.preemptible && <Badge title={t("queue.preemptibleHint")}>{t("queue.preemptible")}</Badge>}
                </span>
                <div className="mt-1 space-y-1 text-xs text-muted md:hidden">
                  <div>
                    {project(projectId)} · {owner || "–"}
                  </div>
                  <div>
                    <PriorityBadge priority={priority} /> {asks.text}
                  </div>
                  <WaitReason waiter={waiter} />
                  <div className="flex flex-wrap gap-x-2">
                    {t("queue.begins")} <EstimatedStart waiter={waiter} now={now} />
                  </div>
                </div>
              </td>
              <td className={MEDIUM_COLUMN}>
                <div className="break-words">{project(projectId)}</div>
                <div className="text-xs text-muted">{owner || "–"}</div>
              </td>
              <td className={MEDIUM_COLUMN}>
                <PriorityBadge priority={priority} />
              </td>
              <td className={MEDIUM_COLUMN}>{asks.text}</td>
              <td className={`${WIDE_COLUMN} whitespace-nowrap`} title={formatDateTime(since)}>
                {formatAge(since, now)}
              </td>
              <td className={`${MEDIUM_COLUMN} max-w-md`}>
                <WaitReason waiter={waiter} />
              </td>
              <td className={MEDIUM_COLUMN}>
                <EstimatedStart waiter={waiter} now={now} />
              </td>
              {movable && (
                <td className="w-px">
                  {mayMove && (
                    <span className="flex flex-col justify-end md:flex-row">
                      {DIRECTIONS.map((way) => (
                        <Button
                          key={way}
                          look="ghost"
                          size="icon"
                          data-move={`${taskId ?? ""} ${way}`}
                          aria-label={t(`queue.${way}`, { name: taskName })}
                          disabled={!moveOneStep(waiters, waiter, way)}
                          onClick={() => press(waiter, way)}
                        >
                          {way === "up" ? <ArrowUp /> : <ArrowDown />}
                        </Button>
                      ))}
                    </span>
                  )}
                </td>
              )}
            </tr>
          );
        })}
      </Table>
    </div>
  );
}

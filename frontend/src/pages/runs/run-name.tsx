import { Archive, EllipsisVertical, Flag, FlagOff, NotebookPen, Pin, PinOff } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { Run } from "@/api/types";
import { formatDateTime } from "@/lib/format";
import { Badge } from "@/ui/badge";
import { Menu, MenuItem } from "@/ui/menu";

interface RunNameProps {
  run: Run;
  isBaseline: boolean;
  isPinned: boolean;
  mayChange: boolean;
  onPin: () => void;
  onBaseline: () => void;
  onNote: () => void;
}

/** The name of a run, what is special about its row, and the menu of its row. */
export function RunName({ run, isBaseline, isPinned, mayChange, onPin, onBaseline, onNote }: RunNameProps) {
  const { t } = useTranslation();
  const { taskId, taskName } = run.task;
  return (
    <div className="flex items-center gap-1.5">
      {isPinned && <Pin role="img" aria-label={t("runs.pinned")} className="size-3.5 shrink-0 text-muted" />}
      {run.archivedAt && (
        <span title={t("runs.archivedAt", { time: formatDateTime(run.archivedAt) })} className="shrink-0">
          <Archive role="img" aria-label={t("runs.archivedMark")} className="size-3.5 text-muted" />
        </span>
      )}
      <Link
        to={`/training/${taskId}`}
        title={`${taskName} · ${taskId}`}
        className="min-w-0 truncate font-medium -outline-offset-2 hover:text-accent-ink hover:underline"
      >
        {taskName}
      </Link>
      {isBaseline && <Badge tone="accent">{t("runs.baseline")}</Badge>}
      <span className="flex-1" />
      <Menu
        label={t("runs.actionsOf", { name: taskName })}
        trigger={
          <button
            type="button"
            aria-label={t("runs.actionsOf", { name: taskName })}
            className="shrink-0 rounded p-1 text-muted -outline-offset-2 hover:bg-sunken hover:text-ink"
          >
            <EllipsisVertical aria-hidden className="size-4" />
          </button>
        }
      >
        <MenuItem icon={isPinned ? <PinOff /> : <Pin />} onSelect={onPin}>
          {t(isPinned ? "runs.unpin" : "runs.pin")}
        </MenuItem>
        <MenuItem icon={isBaseline ? <FlagOff /> : <Flag />} onSelect={onBaseline}>
          {t(isBaseline ? "runs.noBaseline" : "runs.useAsBaseline")}
        </MenuItem>
        <MenuItem icon={<NotebookPen />} onSelect={onNote}>
          {t(mayChange ? "runs.editNote" : "runs.readNote")}
        </MenuItem>
      </Menu>
    </div>
  );
}

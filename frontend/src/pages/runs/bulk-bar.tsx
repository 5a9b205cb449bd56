import { Archive, ArchiveRestore, ChartNoAxesCombined, ChartSpline, Square, Tags, Trash2, X } from "lucide-react";
import { useTranslation } from "react-i18next";
import { buildTensorboardAddress, MAX_TENSORBOARD_TASKS } from "@/api/tensorboards";
import type { Run } from "@/api/types";
import { Button, ButtonLink } from "@/ui/button";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { MAX_TAG_LENGTH, useKnownTags } from "./tag-cell";
import type { RunBulk } from "./use-run-bulk";

const MAX_COMPARED = 50;
const MAX_TAGS = 20;

interface BulkBarProps {
  runs: Run[];
  bulk: RunBulk;
  mayChange: (run: Run) => boolean;
  onClear: () => void;
}

/** What can be done with the selected runs, at the lower edge of the page. */
export function BulkBar({ runs, bulk, mayChange, onClear }: BulkBarProps) {
  const { t } = useTranslation();
  const ids = runs.map(({ task }) => task.taskId);
  const allowing = (action: "stop" | "delete") => runs.filter(({ task }) => task.allowedActions.includes(action));
  const own = runs.filter(mayChange);
  const isArchived = own.length > 0 && own.every(({ archivedAt }) => archivedAt !== null);
  const tooMany = ids.length > MAX_COMPARED;
  const archive = isArchived ? "unarchive" : "archive";
  const end = (action: "stop" | "delete") => {
    const among = allowing(action);
    return (
      <ConfirmDialog
        danger
        title={t(`tasks.${action}Title`, { count: among.length })}
        description={t(`task.${action}Hint`)}
        action={t(`task.${action}`)}
        onConfirm={() => bulk.run(among, action)}
        trigger={
          <Button size="sm" disabled={among.length === 0 || bulk.isPending}>
            {action === "stop" ? <Square /> : <Trash2 />}
            {t(`task.${action}`)}
          </Button>
        }
      />
    );
  };
  return (
    <div
      role="region"
      aria-label={t("runs.selection")}
      className="sticky bottom-3 z-20 mx-auto mt-3 flex w-fit max-w-full flex-wrap items-center gap-2 rounded-xl border border-accent-line bg-surface px-3 py-2 shadow-lg"
    >
      <span role="status" className="text-sm font-medium">
        {t("tasks.selected", { count: runs.length })}
      </span>
      {tooMany ? (
        <span className="text-sm text-muted">{t("runs.compareAtMost", { most: MAX_COMPARED })}</span>
      ) : (
        <ButtonLink
          look="primary"
          size="sm"
          to={`/compare?${new URLSearchParams({ tasks: ids.join(",") }).toString()}`}
        >
          <ChartSpline />
          {t("runs.compare")}
        </ButtonLink>
      )}
      {own.length === ids.length && ids.length <= MAX_TENSORBOARD_TASKS && (
        <ButtonLink size="sm" to={buildTensorboardAddress(ids)} target="_blank">
          <ChartNoAxesCombined />
          {t("tensorboard.open")}
        </ButtonLink>
      )}
      <TagDialog action="addTags" runs={own} bulk={bulk} />
      <TagDialog action="removeTags" runs={own} bulk={bulk} />
      <Button size="sm" disabled={own.length === 0 || bulk.isPending} onClick={() => bulk.run(own, archive)}>
        {isArchived ? <ArchiveRestore /> : <Archive />}
        {t(`runs.${archive}`)}
      </Button>
      {end("stop")}
      {end("delete")}
      <Button look="ghost" size="sm" aria-label={t("runs.clearSelection")} onClick={onClear}>
        <X />
      </Button>
    </div>
  );
}

interface TagDialogProps {
  action: "addTags" | "removeTags";
  runs: Run[];
  bulk: RunBulk;
}

function TagDialog({ action, runs, bulk }: TagDialogProps) {
  const { t } = useTranslation();
  const known = useKnownTags(action === "addTags");
  const present = [...new Set(runs.flatMap(({ tags }) => tags))];
  const isAddition = action === "addTags";
  return (
    <FormDialog
      trigger={
        <Button size="sm" disabled={runs.length === 0 || bulk.isPending || (!isAddition && present.length === 0)}>
          <Tags />
          {t(`runs.${action}`)}
        </Button>
      }
      title={t(`runs.${action}Title`, { count: runs.length })}
      submit={t(isAddition ? "runs.add" : "runs.remove")}
      fields={["tags"]}
      onSubmit={({ tags = "" }) =>
        bulk.change(runs, {
          action,
          tags: [...new Set(tags.split(/[,，]/).map((tag) => tag.trim()))].filter(Boolean).slice(0, MAX_TAGS),
        })
      }
    >
      {(problem) => (
        <TextField
          name="tags"
          label={t("runs.tags")}
          hint={t("runs.tagsHint")}
          required
          maxLength={MAX_TAGS * (MAX_TAG_LENGTH + 2)}
          suggestions={isAddition ? known : present}
          error={problem("tags")}
        />
      )}
    </FormDialog>
  );
}

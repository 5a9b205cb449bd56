import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Plus, X } from "lucide-react";
import { Popover } from "radix-ui";
import { type SubmitEvent, useId, useState } from "react";
import { useTranslation } from "react-i18next";
import { changeRun, completionQuery } from "@/api/runs";
import type { Run } from "@/api/types";
import { cx } from "@/lib/cx";
import { Button } from "@/ui/button";
import { toastError } from "@/ui/errors";

/** In a row of the table, further tags are counted. */
const SHOWN_TAGS = 2;
export const MAX_TAG_LENGTH = 64;

/** Returns tags that runs have, to suggest them. */
export function useKnownTags(enabled: boolean): string[] {
  const query = "tag:";
  const known = useQuery({ ...completionQuery(query, query.length), enabled });
  return known.data?.items.map(({ text }) => text.trim().replace(/^"(.*)"$/, "$1")) ?? [];
}

interface TagCellProps {
  run: { task: Pick<Run["task"], "taskId" | "taskName">; tags: string[] };
  mayChange: boolean;
  /** All tags are shown, on several lines. */
  whole?: boolean;
}

/** The tags of a run, which members of its project add and remove. */
export function TagCell({ run: { task, tags }, mayChange, whole = false }: TagCellProps) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const change = useMutation({ ...changeRun(client), onError: (error) => toastError(t, error) });
  const [open, setOpen] = useState(false);
  const list = useId();
  const known = useKnownTags(open);
  const shown = whole ? tags : tags.slice(0, SHOWN_TAGS);
  const rest = tags.length - shown.length;
  const save = (next: string[]) => change.mutate({ id: task.taskId, tags: next });
  const remove = (tag: string) => save(tags.filter((each) => each !== tag));
  const submit = (event: SubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    const tag = (new FormData(form).get("tag") as string).trim();
    if (tag && !tags.includes(tag)) save([...tags, tag]);
    form.reset();
  };
  if (!mayChange && tags.length === 0) return "–";
  return (
    <div className={cx("flex items-center gap-1", whole ? "flex-wrap" : "overflow-hidden")}>
      {shown.map((tag) => (
        <TagChip key={tag} tag={tag} onRemove={mayChange ? () => remove(tag) : undefined} />
      ))}
      <Popover.Root open={open} onOpenChange={setOpen}>
        <Popover.Trigger asChild>
          <button
            type="button"
            aria-label={`${rest > 0 ? `+${rest} ` : ""}${t(mayChange ? "runs.editTags" : "runs.allTags", { name: task.taskName })}`}
            className="inline-flex h-5 shrink-0 items-center gap-0.5 rounded px-1 text-xs text-muted -outline-offset-2 hover:bg-sunken hover:text-ink"
          >
            {rest > 0 && <span>+{rest}</span>}
            {mayChange && <Plus aria-hidden className="size-3.5" />}
          </button>
        </Popover.Trigger>
        <Popover.Portal>
          <Popover.Content
            align="start"
            sideOffset={4}
            collisionPadding={8}
            aria-label={t("runs.tagsOf", { name: task.taskName })}
            className="z-40 w-72 space-y-2 rounded-lg border bg-surface p-3 text-sm shadow-lg"
          >
            {tags.length === 0 && <p className="text-muted">{t("runs.noTags")}</p>}
            <ul className="flex flex-wrap gap-1">
              {tags.map((tag) => (
                <li key={tag} className="min-w-0">
                  <TagChip tag={tag} onRemove={mayChange ? () => remove(tag) : undefined} />
                </li>
              ))}
            </ul>
            {mayChange && (
              <form onSubmit={submit} className="flex gap-2">
                <input
                  name="tag"
                  list={list}
                  maxLength={MAX_TAG_LENGTH}
                  autoComplete="off"
                  aria-label={t("runs.newTag")}
                  placeholder={t("runs.newTag")}
                  className="control"
                />
                <datalist id={list}>
                  {known.map((tag) => (
                    <option key={tag} value={tag} />
                  ))}
                </datalist>
                <Button type="submit" disabled={change.isPending}>
                  {t("runs.add")}
                </Button>
              </form>
            )}
          </Popover.Content>
        </Popover.Portal>
      </Popover.Root>
    </div>
  );
}

function TagChip({ tag, onRemove }: { tag: string; onRemove: (() => void) | undefined }) {
  const { t } = useTranslation();
  return (
    <span className="inline-flex max-w-full min-w-0 items-center rounded-full border bg-sunken pl-2 text-xs">
      <span title={tag} className="min-w-0 truncate py-px pr-2 has-[+button]:pr-0.5">
        {tag}
      </span>
      {onRemove && (
        <button
          type="button"
          aria-label={t("runs.removeTag", { tag })}
          className="mr-0.5 shrink-0 rounded-full p-0.5 text-muted -outline-offset-2 hover:text-ink"
          onClick={onRemove}
        >
          <X aria-hidden className="size-3" />
        </button>
      )}
    </span>
  );
}

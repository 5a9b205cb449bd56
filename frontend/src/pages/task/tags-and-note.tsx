import { Pencil } from "lucide-react";
import { useState } from "react";
import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { canCreate, meQuery } from "@/api/session";
import type { Task } from "@/api/types";
import { NoteDialog } from "@/pages/runs/note-dialog";
import { TagCell } from "@/pages/runs/tag-cell";
import { Button } from "@/ui/button";
import { Card } from "@/ui/card";
import { Markdown } from "@/ui/markdown";

/** The tags of a task and its note, which members of its project change. */
export default function TagsAndNote({ task }: { task: Task }) {
  const { t } = useTranslation();
  const [editing, setEditing] = useState(false);
  const mayChange = canCreate(useQuery(meQuery).data, task.projectId);
  const { tags, note } = task;
  if (!mayChange && tags.length === 0 && !note) return null;
  return (
    <Card
      title={t("runs.tagsAndNote")}
      aside={
        mayChange && (
          <Button size="sm" look="ghost" onClick={() => setEditing(true)}>
            <Pencil />
            {t(note ? "runs.editNote" : "runs.addNote")}
          </Button>
        )
      }
    >
      <div className="space-y-3 text-sm">
        {(mayChange || tags.length > 0) && <TagCell whole run={{ task, tags }} mayChange={mayChange} />}
        {note && (
          <div className="max-h-60 overflow-y-auto break-words" tabIndex={0} role="group" aria-label={t("runs.note")}>
            <Markdown text={note} />
          </div>
        )}
      </div>
      <NoteDialog run={editing ? { task, note } : undefined} mayChange={mayChange} onClose={() => setEditing(false)} />
    </Card>
  );
}

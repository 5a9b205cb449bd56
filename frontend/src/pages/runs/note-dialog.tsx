import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { changeRun, noteQuery } from "@/api/runs";
import type { Run } from "@/api/types";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { ErrorMessage, LoadError, Loading } from "@/ui/errors";
import { Markdown } from "@/ui/markdown";
import { Modal, ModalClose } from "@/ui/modal";
import { Tabs } from "@/ui/tabs";

const MAX_NOTE_LENGTH = 20_000;
/** Lists have this many characters of a note. */
const SHOWN_NOTE_LENGTH = 200;

/** A run, as far as its note is concerned. */
interface NotedRun {
  task: Pick<Run["task"], "taskId" | "taskName">;
  note: string;
}

interface NoteDialogProps {
  /** Undefined: closed. */
  run: NotedRun | undefined;
  mayChange: boolean;
  onClose: () => void;
}

/** The note of a run, to read and to write. */
export function NoteDialog({ run, mayChange, onClose }: NoteDialogProps) {
  const { t } = useTranslation();
  return (
    <Modal
      wide
      title={run ? t("runs.noteOf", { name: run.task.taskName }) : ""}
      open={run !== undefined}
      onOpenChange={(open) => !open && onClose()}
    >
      {run && <Note key={run.task.taskId} run={run} mayChange={mayChange} onClose={onClose} />}
    </Modal>
  );
}

interface NoteProps {
  run: NotedRun;
  mayChange: boolean;
  onClose: () => void;
}

/** Requests the whole note where the table has its beginning only. */
function Note({ run, mayChange, onClose }: NoteProps) {
  const { t } = useTranslation();
  const id = run.task.taskId;
  const isWhole = run.note.length < SHOWN_NOTE_LENGTH;
  const stored = useQuery({ ...noteQuery(id), enabled: !isWhole, staleTime: 0, refetchOnWindowFocus: false });
  const note = isWhole ? run.note : stored.data;
  if (stored.isError) return <LoadError error={stored.error} retry={() => void stored.refetch()} />;
  if (note === undefined) return <Loading />;
  if (mayChange) return <NoteForm id={id} note={note} onClose={onClose} />;
  return note ? <Markdown text={note} /> : <p className="text-sm text-muted">{t("runs.noNote")}</p>;
}

function NoteForm({ id, note, onClose }: { id: string; note: string; onClose: () => void }) {
  const { t } = useTranslation();
  const [text, setText] = useState(note);
  const save = useMutation({ ...changeRun(useQueryClient()), onError: undefined });
  return (
    <form
      className="space-y-4"
      onSubmit={(event) => {
        event.preventDefault();
        save.mutate({ id, note: text }, { onSuccess: onClose });
      }}
    >
      {save.error && (
        <Callout tone="bad" role="alert">
          <ErrorMessage error={save.error} />
        </Callout>
      )}
      <div className="rounded-lg border">
        <Tabs
          label={t("runs.note")}
          tabs={[
            {
              id: "write",
              label: t("runs.write"),
              content: (
                <textarea
                  aria-label={t("runs.note")}
                  placeholder={t("runs.notePlaceholder")}
                  rows={12}
                  maxLength={MAX_NOTE_LENGTH}
                  className="control h-auto py-2 font-mono"
                  value={text}
                  onChange={({ target }) => setText(target.value)}
                />
              ),
            },
            {
              id: "preview",
              label: t("runs.preview"),
              content: (
                <div className="max-h-96 min-h-40 overflow-y-auto">
                  {text.trim() ? <Markdown text={text} /> : <p className="text-sm text-muted">{t("runs.noNote")}</p>}
                </div>
              ),
            },
          ]}
        />
      </div>
      <div className="flex items-center justify-end gap-2">
        <span className="mr-auto text-xs text-muted">{t("runs.markdown")}</span>
        <ModalClose asChild>
          <Button>{t("app.cancel")}</Button>
        </ModalClose>
        <Button type="submit" look="primary" disabled={save.isPending || text === note}>
          {t("app.save")}
        </Button>
      </div>
    </form>
  );
}

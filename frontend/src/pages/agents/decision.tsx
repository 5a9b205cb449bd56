import { useQueryClient } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { approveProposal, declineProposal, invalidateAgents, type Proposal } from "@/api/agents";
import { Button } from "@/ui/button";
import { Field } from "@/ui/field";
import { FormDialog } from "@/ui/form-dialog";
import { describeProposal } from "./proposal";

/** The buttons that approve and decline, each with a note for the agent. */
export function Decision({ proposal }: { proposal: Proposal }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const { id, state, status, mayDecide, user } = proposal;
  if (!mayDecide) return null;
  const decide =
    (send: (note: string) => Promise<unknown>) =>
    async ({ note = "" }: Record<string, string>) => {
      try {
        await send(note);
      } finally {
        await invalidateAgents(client);
      }
    };
  if (state === "approved" && status === null) {
    return (
      <NoteDialog
        title={t("agents.againTitle")}
        description={t("agents.againHint")}
        label={t("agents.note")}
        submit={t("agents.again")}
        onSubmit={decide((note) => approveProposal(id, note, true))}
        trigger={<Button size="sm">{t("agents.again")}</Button>}
      />
    );
  }
  if (state !== "open") return null;
  return (
    <div className="flex flex-wrap gap-2">
      <NoteDialog
        title={t("agents.approveTitle")}
        description={`${describeProposal(t, proposal)} ${t("agents.approveHint", { name: user })}`}
        label={t("agents.note")}
        submit={t("agents.approve")}
        onSubmit={decide((note) => approveProposal(id, note, false))}
        trigger={<Button look="primary">{t("agents.approve")}</Button>}
      />
      <NoteDialog
        title={t("agents.declineTitle")}
        description={describeProposal(t, proposal)}
        label={t("agents.reason")}
        submit={t("agents.decline")}
        onSubmit={decide((note) => declineProposal(id, note))}
        trigger={<Button>{t("agents.decline")}</Button>}
      />
    </div>
  );
}

interface NoteDialogProps {
  title: string;
  description: string;
  label: string;
  submit: string;
  onSubmit: (texts: Record<string, string>) => Promise<unknown>;
  trigger: ReactNode;
}

function NoteDialog({ label, ...dialog }: NoteDialogProps) {
  const { t } = useTranslation();
  return (
    <FormDialog {...dialog} fields={["note"]}>
      {(problem) => (
        <Field label={label} hint={t("agents.noteHint")} error={problem("note")}>
          {(wiring) => <textarea {...wiring} name="note" rows={3} maxLength={1000} className="control h-auto py-2" />}
        </Field>
      )}
    </FormDialog>
  );
}

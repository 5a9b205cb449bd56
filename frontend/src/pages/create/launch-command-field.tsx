import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { readLaunchCommand } from "@/api/tasks";
import type { LaunchCommand } from "@/api/types";
import { Button } from "@/ui/button";
import { describeError } from "@/ui/errors";
import { Field } from "@/ui/field";
import { applyLaunchCommand, formatEntrypoint } from "./launch-command";
import type { SectionProps } from "./section-props";

/** A box for a launch command such as `torchrun … train.py`, and what it means, for the fields below. */
export function LaunchCommandField({ draft, onChange }: SectionProps) {
  const { t } = useTranslation();
  const [text, setText] = useState("");
  const reading = useMutation(readLaunchCommand);
  const accept = (entrypoint: LaunchCommand["entrypoint"]) => {
    if (reading.data) onChange(applyLaunchCommand(draft, reading.data, entrypoint));
    reading.reset();
    setText("");
  };
  return (
    <div className="space-y-2 sm:col-span-2">
      <Field
        label={t("create.launchCommand")}
        hint={t("create.launchCommandHint")}
        error={reading.error ? describeError(t, reading.error) : undefined}
      >
        {(wiring) => (
          <textarea
            {...wiring}
            rows={2}
            spellCheck={false}
            className="control h-auto py-2 font-mono"
            placeholder="torchrun --nproc_per_node=8 train.py --lr 1e-4"
            value={text}
            onChange={({ target }) => {
              setText(target.value);
              reading.reset();
            }}
          />
        )}
      </Field>
      {text.trim() && !reading.data && (
        <Button size="sm" disabled={reading.isPending} onClick={() => reading.mutate(text)}>
          {t("create.launchCommandRead")}
        </Button>
      )}
      {reading.data && <Meaning found={reading.data} onAccept={accept} />}
    </div>
  );
}

interface MeaningProps {
  found: LaunchCommand;
  onAccept: (entrypoint: LaunchCommand["entrypoint"]) => void;
}

function Meaning({ found, onAccept }: MeaningProps) {
  const { t } = useTranslation();
  const { entrypoint, asIs, gpusPerNode, nodes } = found;
  const notes = [...found.unclear, ...found.notes];
  return (
    <section
      aria-label={t("create.launchCommandMeaning")}
      className="space-y-2 rounded-lg border border-line p-3 text-sm"
    >
      <p>{t(entrypoint.processes === "node" ? "create.oncePerNode" : "create.oncePerGpu")}</p>
      <code className="block break-all">{formatEntrypoint(entrypoint)}</code>
      {(gpusPerNode ?? nodes) && (
        <p className="text-muted">
          {t("create.launchCommandCounts", { gpus: gpusPerNode ?? "–", nodes: nodes ?? "–" })}
        </p>
      )}
      {notes.length > 0 && (
        <ul className="list-disc space-y-1 pl-5 text-muted">
          {notes.map(({ code, message, hint }) => (
            <li key={`${code} ${message}`} className="break-words">
              {message} {hint}
            </li>
          ))}
        </ul>
      )}
      <div className="flex flex-wrap gap-2">
        <Button size="sm" onClick={() => onAccept(entrypoint)}>
          {t("create.launchCommandAccept")}
        </Button>
        {found.unclear.length === 0 && (
          <Button size="sm" look="ghost" onClick={() => onAccept(asIs)}>
            {t("create.launchCommandAsIs")}
          </Button>
        )}
      </div>
    </section>
  );
}

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useId, useState } from "react";
import { useTranslation } from "react-i18next";
import { type CodeChoice, type CodeSource, codeSourceQuery } from "@/api/code";

const CHOICES = ["current", "snapshot"] as const;

/**
 * Returns the choice of code for a retry, as a control for the dialog and as a part of the request. If the code has
 * changed since the snapshot, the current code is the default; until this is known, the platform decides.
 */
export function useCodeChoice(id: string) {
  const [open, setOpen] = useState(false);
  const [chosen, choose] = useState<CodeChoice>();
  const source = useQuery({ ...codeSourceQuery(id), enabled: open });
  const proposed = source.data && (source.data.changed ? "current" : "snapshot");
  const code: CodeChoice = chosen ?? proposed ?? "auto";
  const field = open && <Choice id={id} source={source.data} failed={source.isError} code={code} onChoose={choose} />;
  const onOpenChange = (open: boolean) => {
    setOpen(open);
    choose(undefined);
  };
  return { code, field, onOpenChange };
}

interface ChoiceProps {
  id: string;
  source: CodeSource | undefined;
  failed: boolean;
  code: CodeChoice;
  onChoose: (code: CodeChoice) => void;
}

function Choice({ id, source, failed, code, onChoose }: ChoiceProps): ReactNode {
  const { t } = useTranslation();
  const name = useId();
  const note = (text: string) => (
    <p role="status" className="mt-3 text-sm break-words text-muted">
      {text}
    </p>
  );
  if (!source) return note(t(failed ? "task.codeChoice.unknown" : "task.codeChoice.looking"));
  const { snapshotId, kind, changed, why } = source;
  if (!snapshotId) return null;
  const snapshot = snapshotId.slice(0, 12);
  if (kind === "upload") return note(t("task.codeChoice.upload", { snapshot, command: `fermi retry ${id} --code .` }));
  const place = kind === "git" ? `${source.url} ${source.revision}` : `${source.environment}:${source.path}`;
  return (
    <fieldset className="mt-4 space-y-1.5 text-sm">
      <legend className="mb-1 font-medium">{t("task.codeChoice.title")}</legend>
      {CHOICES.map((each) => (
        <label key={each} className="flex items-start gap-2">
          <input type="radio" name={name} className="mt-1" checked={code === each} onChange={() => onChoose(each)} />
          <span className="min-w-0 break-words">{t(`task.codeChoice.${each}`, { snapshot, place })}</span>
        </label>
      ))}
      <p role="status" className="break-words text-muted">
        {why?.message ?? t(`task.codeChoice.${changed ? "changed" : changed === false ? "same" : "unknown"}`)}
      </p>
    </fieldset>
  );
}

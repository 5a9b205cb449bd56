import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { readSweepFile } from "@/api/sweeps";
import { Button } from "@/ui/button";
import { Collapsible } from "@/ui/collapsible";
import { describeError } from "@/ui/errors";
import { Field } from "@/ui/field";
import { MessageList } from "@/ui/message-list";
import { applyFile } from "./draft";
import type { SectionProps } from "./section-props";

const EXAMPLE = `name: rates
objective: {metric: val_loss, goal: minimize}
parameters:
  lr: {min: 1e-5, max: 1e-2, scale: log}
budget: {trials: 20}`;

/** A box for a sweep file, which fills in the form. */
export function FileField({ draft, onChange }: Pick<SectionProps, "draft" | "onChange">) {
  const { t } = useTranslation();
  const [text, setText] = useState("");
  const reading = useMutation(readSweepFile);
  const read = () =>
    reading.mutate(text, {
      onSuccess: ({ sweep, problems }) => {
        if (problems.length === 0) onChange(applyFile(draft, sweep));
      },
    });
  const problems = reading.data?.problems ?? [];
  return (
    <Collapsible
      title={t("sweepForm.file")}
      wanted={false}
      summaryClassName="w-fit text-sm font-medium"
      whenOpen={() => (
        <div className="mt-3 space-y-2">
          <Field
            label={t("sweepForm.fileText")}
            hint={t("sweepForm.fileHint")}
            error={reading.error ? describeError(t, reading.error) : undefined}
          >
            {(wiring) => (
              <textarea
                {...wiring}
                rows={7}
                spellCheck={false}
                className="control h-auto py-2 font-mono"
                placeholder={EXAMPLE}
                value={text}
                onChange={({ target }) => {
                  setText(target.value);
                  reading.reset();
                }}
              />
            )}
          </Field>
          {problems.length > 0 && (
            <MessageList notes={problems.map(({ message, hint }) => ({ id: message, level: "warn", message, hint }))} />
          )}
          <div className="flex items-center gap-3">
            <Button size="sm" disabled={!text.trim() || reading.isPending} onClick={read}>
              {t("sweepForm.fileRead")}
            </Button>
            <span role="status" className="text-sm text-ok-ink">
              {reading.data && problems.length === 0 && t("sweepForm.fileTaken")}
            </span>
          </div>
        </div>
      )}
    />
  );
}

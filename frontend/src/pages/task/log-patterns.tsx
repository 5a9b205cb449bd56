import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { changeLogPattern, type LogPattern, logPatternsKey } from "@/api/log-patterns";
import { taskKeys } from "@/api/tasks";
import { Collapsible } from "@/ui/collapsible";
import { toastError } from "@/ui/errors";

type Change = { key: string; enabled?: boolean; fields?: Record<string, string> };

interface LogPatternsProps {
  task: string;
  patterns: LogPattern[];
}

/** The lines of the log in which curves were found: each can be switched off, and its fields named or left out. */
export default function LogPatterns({ task, patterns }: LogPatternsProps) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const change = useMutation({
    mutationFn: ({ key, ...body }: Change) => changeLogPattern(task, key, body),
    onSuccess: (changed) => {
      client.setQueryData<LogPattern[]>(logPatternsKey(task), (all) =>
        all?.map((each) => (each.key === changed.key ? changed : each)),
      );
      // points that are known already have changed: the curves are read anew
      return client.resetQueries({ queryKey: taskKeys.metrics(task) });
    },
    onError: (error) => toastError(t, error),
  });
  return (
    <Collapsible
      title={t("logPatterns.title", { count: patterns.length })}
      wanted={false}
      className="mt-4"
      summaryClassName="text-sm font-medium"
    >
      <p className="mt-1 mb-2 text-sm text-muted">{t("logPatterns.hint")}</p>
      <ul className="space-y-3">
        {patterns.map((pattern) => (
          <li key={pattern.key} className="rounded-lg border p-3 text-sm">
            <label className="flex items-start gap-2">
              <input
                type="checkbox"
                role="switch"
                className="mt-1"
                checked={pattern.enabled}
                disabled={change.isPending}
                onChange={({ target }) => change.mutate({ key: pattern.key, enabled: target.checked })}
              />
              <code className="min-w-0 break-all">{pattern.line}</code>
            </label>
            {pattern.example && (
              <p className="mt-1 ml-6 truncate font-mono text-xs text-muted" title={pattern.example}>
                {t("logPatterns.example", { line: pattern.example })}
              </p>
            )}
            {pattern.enabled && pattern.fields.length > 0 && (
              <div className="mt-2 ml-6 grid gap-2 sm:grid-cols-2 xl:grid-cols-3">
                {pattern.fields.map((field) => (
                  <FieldName
                    key={`${field.name} ${field.shownAs}`}
                    field={field}
                    disabled={change.isPending}
                    onName={(shownAs) => change.mutate({ key: pattern.key, fields: { [field.name]: shownAs } })}
                  />
                ))}
              </div>
            )}
          </li>
        ))}
      </ul>
    </Collapsible>
  );
}

interface FieldNameProps {
  field: LogPattern["fields"][number];
  disabled: boolean;
  onName: (name: string) => void;
}

/** The curve's name for a printed field: sent when the input is left, or with Enter. */
function FieldName({ field, disabled, onName }: FieldNameProps) {
  const { t } = useTranslation();
  const [text, setText] = useState(field.shownAs);
  const send = () => {
    if (text.trim() !== field.shownAs) onName(text.trim());
  };
  return (
    <label className="flex min-w-0 items-center gap-2">
      <span className="min-w-0 shrink-0 text-muted">
        {field.name}
        {field.unit && ` (${field.unit})`} →
      </span>
      <input
        className="control h-8 font-mono text-xs"
        aria-label={t("logPatterns.name", { field: field.name })}
        placeholder={t("logPatterns.leftOut")}
        maxLength={60}
        spellCheck={false}
        disabled={disabled}
        value={text}
        onChange={({ target }) => setText(target.value)}
        onBlur={send}
        onKeyDown={({ key }) => key === "Enter" && send()}
      />
    </label>
  );
}

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Lightbulb } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { recommendQuery } from "@/api/recommend";
import type { RecommendedFramework } from "@/api/types";
import { formatCount } from "@/lib/format";
import { useDebounced } from "@/lib/hooks";
import { Badge } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Field } from "@/ui/field";
import { type Draft, usesOwnScript, parseHyperparameters } from "./draft";
import { formatOption } from "./options";
import type { SectionProps } from "./section-props";
import { parseModelSize } from "./model-size";

const ASK_AFTER_MS = 400;

/** Recommended frameworks for a model of this size on these environments, if the platform has any. */
export function Recommendation({ draft, onChange }: SectionProps) {
  const { t } = useTranslation();
  const [size, setSize] = useState("");
  const { selected, master, modelId } = draft;
  const modelParameters = size.trim() ? parseModelSize(size) : undefined;
  const body = {
    modelParameters,
    modelId: modelId || undefined,
    environmentIds: selected,
    masterNode: master || undefined,
    hyperparameters: usesOwnScript(draft) ? undefined : parseHyperparameters(draft),
  };
  const request = useStableValue(body);
  const { data } = useQuery({ ...recommendQuery(request), placeholderData: keepPreviousData });
  if (!data?.items.length && !size) return null;
  return (
    <div className="rounded-lg border border-warn-line bg-surface p-3">
      <div className="grid gap-3 sm:grid-cols-[11rem_minmax(0,1fr)]">
        <Field
          label={t("create.modelSize")}
          error={size.trim() && !modelParameters ? t("create.modelSizeInvalid") : undefined}
        >
          {(wiring) => (
            <input
              {...wiring}
              className="control"
              autoComplete="off"
              placeholder={data ? formatCount(data.modelParameters) : "7B"}
              value={size}
              onChange={({ target }) => setSize(target.value)}
            />
          )}
        </Field>
        <ul className="min-w-0 space-y-2">
          {data?.items.slice(0, 2).map((each, index) => (
            <Suggestion key={each.framework} suggestion={each} best={index === 0} draft={draft} onChange={onChange} />
          ))}
        </ul>
      </div>
    </div>
  );
}

interface SuggestionProps {
  suggestion: RecommendedFramework;
  best: boolean;
  draft: Draft;
  onChange: SectionProps["onChange"];
}

function Suggestion({ suggestion, best, draft, onChange }: SuggestionProps) {
  const { t } = useTranslation();
  const { framework, label, strategy, options, reasons } = suggestion;
  const texts = (values: Record<string, unknown>) =>
    Object.fromEntries(Object.entries(values).map(([name, value]) => [name, formatOption(value)]));
  const take = () =>
    onChange({
      framework,
      tuning: { ...draft.tuning, [framework]: { strategy: texts(strategy), options: texts(options) } },
    });
  const facts = Object.entries({ ...strategy, ...options }).map(([name, value]) => `${name} ${formatOption(value)}`);
  return (
    <li className="flex flex-wrap items-start justify-between gap-x-3 gap-y-1">
      <div className="min-w-0 flex-1 basis-52">
        <p className="flex flex-wrap items-center gap-1.5 text-sm font-medium">
          {best && <Lightbulb aria-hidden className="size-4 text-warn-ink" />}
          {t("create.recommended", { framework: label })}
          {draft.framework === framework && <Badge tone="ok">{t("create.inUse")}</Badge>}
        </p>
        <p className="text-sm text-muted">{reasons.map(({ message }) => message).join(" ")}</p>
        {facts.length > 0 && <p className="font-mono text-xs break-words text-muted">{facts.join(" · ")}</p>}
      </div>
      <Button size="sm" onClick={take}>
        {t("create.take")}
      </Button>
    </li>
  );
}

/** Returns the same object while its JSON is equal, so that equal bodies are one query. */
export function useStableValue<T>(value: T): T {
  return JSON.parse(useDebounced(JSON.stringify(value), ASK_AFTER_MS)) as T;
}

import type { UseQueryResult } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import type { Problem, SweepPreview } from "@/api/types";
import { cx } from "@/lib/cx";
import { formatInteger } from "@/lib/format";
import { Badge } from "@/ui/badge";
import { Card } from "@/ui/card";
import { LoadError } from "@/ui/errors";
import { MessageList } from "@/ui/message-list";
import { type Value, formatValue } from "./values";

interface PreviewProps {
  preview: UseQueryResult<SweepPreview>;
  /** Whether a newer preview is pending. */
  waiting: boolean;
  /** Those that are shown. */
  problems: Problem[];
  /** How many there are. */
  count: number;
  onGoTo: (problem: Problem) => void;
}

/** The first trials, as the platform would start them, and what is still missing. */
export function Preview({ preview, waiting, problems, count, onGoTo }: PreviewProps) {
  const { t } = useTranslation();
  const { data } = preview;
  const isStale = waiting || preview.isFetching;
  return (
    <Card
      title={t("sweepForm.preview")}
      aside={
        <span role="status">
          {isStale ? (
            <span className="text-sm text-muted">{t("create.previewing")}</span>
          ) : count > 0 ? (
            <Badge tone="warn">{t("create.problems", { count })}</Badge>
          ) : (
            data && <Badge tone="ok">{t("create.ready")}</Badge>
          )}
        </span>
      }
    >
      <div className={cx("space-y-3 transition-opacity", isStale && "opacity-60")} aria-busy={isStale}>
        {preview.isError && problems.length === 0 && (
          <LoadError error={preview.error} retry={() => void preview.refetch()} />
        )}
        <MessageList
          label={t("sweepForm.problems")}
          notes={[
            ...problems.map((problem) => ({
              id: `${problem.field}/${problem.error}/${problem.message}`,
              level: "warn" as const,
              message: problem.message,
              hint: problem.hint,
              action: problem.field && (
                <button
                  type="button"
                  className="shrink-0 rounded-md font-medium text-accent-ink underline underline-offset-2"
                  onClick={() => onGoTo(problem)}
                >
                  {t("create.goTo")}
                </button>
              ),
            })),
            ...(data?.warnings ?? []).map(({ field, code, message, hint }) => ({
              id: `${field}/${code}`,
              level: "info" as const,
              message,
              hint,
            })),
          ]}
        />
        {data && data.parameters.length > 0 ? (
          <>
            <p className="text-sm text-muted">
              {data.count === null
                ? t("sweepForm.countOpen")
                : t("sweepForm.count", { count: data.count, number: formatInteger(data.count) })}
            </p>
            <FirstTrials preview={data} />
          </>
        ) : (
          <p className="text-sm text-muted">{t("sweepForm.previewHint")}</p>
        )}
      </div>
    </Card>
  );
}

/** Each with its command, or with its parameters where the platform's trainer gets them. */
function FirstTrials({ preview: { parameters, commands } }: { preview: SweepPreview }) {
  const { t } = useTranslation();
  return (
    <ol aria-label={t("sweepForm.firstTrials")} className="space-y-1.5">
      {parameters.map((chosen, number) => (
        <li key={number} className="flex gap-2 text-xs">
          <span className="w-6 shrink-0 pt-1 text-right text-muted tabular-nums">#{number}</span>
          <code className="min-w-0 flex-1 rounded-md bg-sunken px-2 py-1 font-mono break-all">
            {commands[number] ??
              Object.entries(chosen)
                .map(([name, value]) => `${name} = ${formatValue(shorten(value as Value))}`)
                .join(", ")}
          </code>
        </li>
      ))}
    </ol>
  );
}

/** Digits that tell one trial's value from another's. */
const SHOWN_DIGITS = 5;

const shorten = (value: Value): Value => (typeof value === "number" ? Number(value.toPrecision(SHOWN_DIGITS)) : value);

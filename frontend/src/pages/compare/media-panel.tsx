import { useQueries, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { type ComparedMedia, type ComparedRun, runMediaQuery } from "@/api/compare";
import { mediaFileQuery, type MediaItem } from "@/api/media";
import { formatInteger } from "@/lib/format";
import { Card } from "@/ui/card";
import { Loading } from "@/ui/errors";
import { MediaContent } from "../task/media-content";
import type { RunStyle } from "./chart-data";

/** Runs whose files are shown next to each other. */
const MAX_SHOWN = 12;

interface MediaPanelProps {
  media: ComparedMedia[];
  runs: ComparedRun[];
  styles: Map<string, RunStyle>;
}

/** What scripts logged besides numbers: one name at one step, of each run. */
export default function MediaPanel({ media, runs, styles }: MediaPanelProps) {
  const { t } = useTranslation();
  const [chosen, setChosen] = useState(0);
  const [step, setStep] = useState<number>();
  const medium = media[chosen] ?? media[0];
  const shown = runs.slice(0, MAX_SHOWN);
  const lists = useQueries({
    queries: medium ? shown.map(({ taskId }) => runMediaQuery(taskId, medium.kind, medium.name)) : [],
  });
  if (!medium) return null;
  const steps = [...new Set(lists.flatMap(({ data = [] }) => data.map((item) => item.step)))].sort((a, b) => a - b);
  const at =
    step === undefined
      ? steps.length - 1
      : Math.max(
          0,
          steps.findLastIndex((each) => each <= step),
        );
  const current = steps[at];
  return (
    <Card
      title={t("compare.media")}
      aside={
        <select
          aria-label={t("compare.mediaName")}
          className="control w-auto max-w-72"
          value={chosen}
          onChange={({ target }) => {
            setChosen(Number(target.value));
            setStep(undefined);
          }}
        >
          {media.map(({ kind, name, runs: count }, index) => (
            <option key={`${kind} ${name}`} value={index}>
              {`${name} · ${t(`media.kind.${kind}`)} (${count})`}
            </option>
          ))}
        </select>
      }
    >
      {steps.length > 1 && (
        <label className="mb-3 flex items-center gap-3 text-sm text-muted">
          {t("media.step", { step: formatInteger(current ?? 0) })}
          <input
            type="range"
            min={0}
            max={steps.length - 1}
            value={at}
            aria-valuetext={t("media.step", { step: formatInteger(current ?? 0) })}
            className="min-w-0 flex-1 accent-accent"
            onChange={({ target }) => setStep(steps[Number(target.value)])}
          />
        </label>
      )}
      <div className="grid gap-3 sm:grid-cols-2 lg:grid-cols-3 xl:grid-cols-4">
        {shown.map((run, index) => {
          const item = lists[index]?.data?.findLast((each) => current === undefined || each.step <= current);
          return (
            <figure key={run.taskId} className="min-w-0 space-y-2 rounded-lg border p-3">
              <figcaption className="flex flex-wrap items-baseline gap-x-2 text-sm">
                <span className="min-w-0 font-medium break-all">{styles.get(run.taskId)?.label}</span>
                {item && (
                  <span className="text-xs text-muted">{t("media.step", { step: formatInteger(item.step) })}</span>
                )}
              </figcaption>
              {item ? (
                <RunMedia task={run.taskId} item={item} />
              ) : (
                <p className="py-6 text-center text-sm text-muted">
                  {lists[index]?.isPending ? "" : t("compare.noMedia")}
                </p>
              )}
            </figure>
          );
        })}
      </div>
      {runs.length > MAX_SHOWN && (
        <p className="mt-3 text-sm text-muted">{t("compare.moreMedia", { count: runs.length - MAX_SHOWN })}</p>
      )}
    </Card>
  );
}

function RunMedia({ task, item }: { task: string; item: MediaItem }) {
  const { t } = useTranslation();
  const file = useQuery(mediaFileQuery(task, item.path));
  if (file.isPending) return <Loading />;
  if (!file.data) {
    return (
      <p className="py-6 text-center text-sm text-muted">{t(file.isError ? "media.unreadable" : "media.tooLarge")}</p>
    );
  }
  const label = `${item.name}, ${t("media.step", { step: formatInteger(item.step) })}`;
  return <MediaContent key={item.path} kind={item.kind} file={file.data} path={item.path} label={label} />;
}

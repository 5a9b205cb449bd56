import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { isOver } from "@/api/tasks";
import { type Stretch, taskTelemetryQuery } from "@/api/telemetry";
import type { Metric, Task } from "@/api/types";
import { figure, integer } from "@/lib/format";
import { Badge } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Empty } from "@/ui/empty";
import { Failure, Loading } from "@/ui/failure";
import { metricsOf, onMoments, PANEL_IDS, stepsAt } from "@/ui/machines/bands";
import { Panels } from "@/ui/machines/panels";
import { TimeChart } from "@/ui/machines/time-chart";

const POINTS = 300;
/** Of a task with very many ranks, fewer points of each are enough for a band. */
const MANY = 64;

/** What the task's GPUs, processors and network did, on one axis with its loss. */
export default function Machines({ task, metrics, rank }: { task: Task; metrics: Metric[]; rank?: number }) {
  const { t } = useTranslation();
  const [stretch, setStretch] = useState<Stretch>();
  const [bySteps, setBySteps] = useState(false);
  const points = task.worldSize > MANY ? POINTS / 2 : POINTS;
  const told = useQuery(taskTelemetryQuery(task.taskId, METRICS, stretch, points, !isOver(task)));
  const step = useMemo(() => stepsAt(metrics), [metrics]);
  const marks = useMemo(
    () =>
      (told.data?.marks ?? []).map(({ at, code, attempt, outcome }) => ({
        at: new Date(at).getTime() / 1000,
        label: t(code === "ATTEMPT_STARTED" ? "machines.attemptBegan" : "machines.attemptEnded", { attempt }),
        bad: code === "ATTEMPT_ENDED" && !WELL.some((end) => outcome.startsWith(end)),
      })),
    [told.data, t],
  );
  if (told.isError) return <Failure error={told.error} retry={() => void told.refetch()} />;
  if (!told.data) return <Loading />;
  if (told.data.series.length === 0) {
    return (
      <Empty title={t("machines.nothing")} hint={t(isOver(task) ? "machines.nothingOver" : "machines.nothingYet")} />
    );
  }
  const hasLoss = metrics.some(({ values }) => values.loss != null);
  return (
    <div className="space-y-3">
      <div className="flex flex-wrap items-center gap-x-4 gap-y-2 text-sm">
        {told.data.emulated && <Badge tone="warn">{t("machines.emulated")}</Badge>}
        <span className="text-muted">{t("machines.drag")}</span>
        <span className="ml-auto flex flex-wrap items-center gap-3">
          {metrics.length > 0 && (
            <label className="flex items-center gap-1.5 text-muted">
              <input type="checkbox" checked={bySteps} onChange={({ target }) => setBySteps(target.checked)} />
              {t("machines.bySteps")}
            </label>
          )}
          {stretch && <Button onClick={() => setStretch(undefined)}>{t("machines.all")}</Button>}
        </span>
      </div>
      <Panels
        answer={told.data}
        marks={marks}
        alone={rank}
        below={bySteps ? (at) => stepText(step(at)) : undefined}
        onZoom={setStretch}
        extra={
          hasLoss
            ? (moments, group) => (
                <figure className="min-w-0">
                  <figcaption className="mb-1 text-sm">{t("task.lossChart")}</figcaption>
                  <TimeChart
                    label={t("task.lossChart")}
                    moments={moments}
                    curves={[
                      {
                        label: t("task.lossChart"),
                        values: joined(onMoments(metrics, "loss", moments)),
                        color: "--accent-ink",
                        look: "strong",
                      },
                    ]}
                    marks={marks}
                    group={group}
                    text={figure}
                    below={bySteps ? (at) => stepText(step(at)) : undefined}
                    onZoom={(from, to) => setStretch({ from: from * 1000, to: to * 1000 })}
                  />
                </figure>
              )
            : undefined
        }
      />
    </div>
  );
}

/** Ends that are no failure: it came to its end, or somebody asked for it. */
const WELL = ["COMPLETED", "STOPPED", "GAVE_WAY", "PAUSED", "RESIZING"];
const METRICS = metricsOf(PANEL_IDS);

const stepText = (step: number | null) => (step == null ? "" : integer(step));

/** A line through what was printed seldom. */
function joined(values: (number | null)[]): (number | null)[] {
  let last: number | null = null;
  const until = values.findLastIndex((value) => value != null);
  return values.map((value, at) => {
    if (value != null) last = value;
    return at <= until ? last : null;
  });
}

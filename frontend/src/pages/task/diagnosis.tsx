import { useQuery } from "@tanstack/react-query";
import { Check, Info, TriangleAlert, X } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { diagnosisQuery, isFinished } from "@/api/tasks";
import type { DiagnosisFinding, Diagnosis, Task } from "@/api/types";
import { cx } from "@/lib/cx";
import { formatAge, formatDateTime } from "@/lib/format";
import { useNow } from "@/lib/hooks";
import { Collapsible } from "@/ui/collapsible";
import { SuggestedActions } from "./suggested-actions";

const SEVERITY_STYLE: Record<DiagnosisFinding["level"], { icon: ReactNode; ink: string; box: string }> = {
  info: { icon: <Info aria-hidden />, ink: "text-info-ink", box: "border-line bg-surface" },
  warn: { icon: <TriangleAlert aria-hidden />, ink: "text-warn-ink", box: "border-warn-line bg-warn-soft" },
  fail: { icon: <X aria-hidden />, ink: "text-bad-ink", box: "border-bad-line bg-bad-soft" },
};

interface DiagnosisPanelProps {
  task: Task;
  /** Opens a rank's log. */
  onRank: (rank: number) => void;
  /** Shown until there is a diagnosis, and if it cannot be loaded. */
  children: ReactNode;
}

/** The diagnosis of a task: one line if all is well, else each finding with its time, place, evidence and actions. */
export default function DiagnosisPanel({ task, onRank, children }: DiagnosisPanelProps) {
  const { t } = useTranslation();
  const { data } = useQuery(diagnosisQuery(task.taskId, isFinished(task)));
  if (!data) return children;
  const going = data.findings.filter((one, index) => one.until == null && (index === 0 || !repeatsSummary(one, data)));
  const earlier = data.findings.filter(({ until }) => until != null);
  const level = going[0]?.level ?? (data.healthy ? "info" : "fail");
  const { icon, ink, box } = data.healthy ? SEVERITY_STYLE.info : SEVERITY_STYLE[level];
  return (
    <section
      aria-label={t("task.why.title")}
      className={cx("mb-4 rounded-xl border px-4 py-2.5 text-sm shadow-xs", box)}
    >
      <p
        role="status"
        className={cx("flex items-start gap-2 [&>svg]:mt-0.5 [&>svg]:size-4 [&>svg]:shrink-0", !data.healthy && ink)}
      >
        {data.healthy && going.length === 0 ? <Check aria-hidden className="text-ok-ink" /> : icon}
        <span className={cx("min-w-0 break-words", going.length > 0 && "font-medium")}>{data.summary}</span>
      </p>
      {going.length > 0 && (
        <ul className="divide-y divide-line">
          {going.map((finding) => (
            <Finding key={buildFindingKey(finding)} finding={finding} of={data} task={task} onRank={onRank} />
          ))}
        </ul>
      )}
      {earlier.length > 0 && <EarlierFindings findings={earlier} />}
    </section>
  );
}

/** Returns whether a finding says no more than the summary above it. */
const repeatsSummary = ({ message, hint, evidence, actions }: DiagnosisFinding, { summary }: Diagnosis) =>
  message === summary && !hint && evidence.length === 0 && actions.length === 0;

const buildFindingKey = ({ attempt, code, since, message }: DiagnosisFinding) =>
  [attempt, code, since, message].join(" ");

interface FindingProps {
  finding: DiagnosisFinding;
  of: Diagnosis;
  task: Task;
  onRank: (rank: number) => void;
}

function Finding({ finding, of, task, onRank }: FindingProps) {
  const { icon, ink } = SEVERITY_STYLE[finding.level];
  return (
    <li className="space-y-1.5 py-2 pl-6 first:pt-1 last:pb-1">
      {finding.message !== of.summary && (
        <p
          className={cx("-ml-6 flex items-start gap-2 font-medium [&>svg]:mt-0.5 [&>svg]:size-4 [&>svg]:shrink-0", ink)}
        >
          {icon}
          <span className="min-w-0 break-words">{finding.message}</span>
        </p>
      )}
      <FindingContext finding={finding} />
      {finding.hint && <p className="break-words">{finding.hint}</p>}
      {finding.evidence.map((one, index) =>
        one.lines.length > 0 ? (
          <Collapsible
            key={index}
            wanted={false}
            title={<span className="min-w-0 break-words">{one.message}</span>}
            summaryClassName="-ml-6 cursor-pointer"
          >
            <pre className="mt-1 max-h-80 overflow-auto rounded-lg border bg-sunken p-2.5 font-mono text-xs text-ink">
              {one.lines.join("\n")}
            </pre>
          </Collapsible>
        ) : (
          <p key={index} className="break-words">
            {one.message}
          </p>
        ),
      )}
      <SuggestedActions actions={finding.actions} task={task} onRank={onRank} />
    </li>
  );
}

/** Time, attempt, rank and node of a finding. */
function FindingContext({ finding }: { finding: DiagnosisFinding }) {
  const { t } = useTranslation();
  const now = useNow();
  const places = finding.where.map(({ rank, node }) =>
    [rank != null && t("task.rank", { rank }), node].filter(Boolean).join(" · "),
  );
  return (
    <p className="flex flex-wrap gap-x-3 text-xs text-muted">
      {finding.since && (
        <span title={formatDateTime(finding.since)}>
          {t("task.why.since", { time: formatAge(finding.since, now) })}
        </span>
      )}
      {finding.attempt > 0 && <span>{t("task.attempt", { number: finding.attempt })}</span>}
      {places.map((place) => (
        <span key={place}>{place}</span>
      ))}
    </p>
  );
}

function EarlierFindings({ findings }: { findings: DiagnosisFinding[] }) {
  const { t } = useTranslation();
  return (
    <Collapsible
      wanted={false}
      title={t("task.why.earlier", { count: findings.length })}
      summaryClassName="mt-1 cursor-pointer text-xs text-muted"
    >
      <ul className="mt-1 space-y-1.5 pl-6">
        {findings.map((finding) => (
          <li key={buildFindingKey(finding)}>
            <p className="break-words">{finding.message}</p>
            {finding.evidence
              .filter(({ lines }) => lines.length === 0)
              .map(({ message }) => (
                <p key={message} className="break-words text-muted">
                  {message}
                </p>
              ))}
            <FindingContext finding={finding} />
          </li>
        ))}
      </ul>
    </Collapsible>
  );
}

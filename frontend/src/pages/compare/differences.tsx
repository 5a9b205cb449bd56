import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import {
  type CurveDivergence,
  type DifferingFile,
  type RunDifference,
  runDifferencesQuery,
} from "@/api/run-differences";
import { escapeName } from "@/lib/escape-name";
import { Badge } from "@/ui/badge";
import { Collapsible } from "@/ui/collapsible";
import { LoadError, Loading } from "@/ui/errors";

/** Differences shown before the reader asks for the rest. */
const FIRST = 12;
/** From which weight on a difference is marked as likely to matter, or as possible. */
const LIKELY = 70;
const POSSIBLE = 40;

interface DifferencesProps {
  left: string;
  right: string;
}

/** What differs between two runs, the likeliest cause of another result first. */
export function Differences({ left, right }: DifferencesProps) {
  const { t } = useTranslation();
  const found = useQuery(runDifferencesQuery(left, right));
  const [whole, setWhole] = useState(false);
  if (found.isError) return <LoadError error={found.error} retry={() => void found.refetch()} />;
  if (!found.data) return <Loading />;
  const { differences, curves, files, gaps, leftOut, filesLeftOut } = found.data;
  const shown = whole ? differences : differences.slice(0, FIRST);
  return (
    <div className="space-y-3">
      <p className="text-sm break-words text-muted">
        {escapeName(found.data.left.taskName)} → {escapeName(found.data.right.taskName)}
      </p>
      {differences.length === 0 && <p className="text-sm text-muted">{t("differences.none")}</p>}
      {differences.length > 0 && (
        <ol className="divide-y rounded-lg border text-sm">
          {shown.map((each) => (
            <Row key={`${each.kind} ${each.name} ${each.code}`} difference={each} files={files} />
          ))}
        </ol>
      )}
      {shown.length < differences.length && (
        <button type="button" className="text-sm text-accent-ink underline" onClick={() => setWhole(true)}>
          {t("differences.more", { count: differences.length - shown.length })}
        </button>
      )}
      {leftOut > 0 && <p className="text-sm text-muted">{t("differences.leftOut", { count: leftOut })}</p>}
      {filesLeftOut > 0 && (
        <p className="text-sm text-muted">{t("differences.filesLeftOut", { count: filesLeftOut })}</p>
      )}
      {curves.length > 0 && (
        <ul aria-label={t("differences.curves")} className="space-y-2 text-sm">
          {curves.map((each) => (
            <Curve key={each.metric} curve={each} />
          ))}
        </ul>
      )}
      {gaps.length > 0 && (
        <ul aria-label={t("differences.gaps")} className="space-y-1 text-sm text-muted">
          {gaps.map(({ message, hint }) => (
            <li key={message}>
              {message} {hint}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function Row({ difference, files }: { difference: RunDifference; files: DifferingFile[] }) {
  const { t } = useTranslation();
  const { kind, weight, message, hint } = difference;
  const level = weight >= LIKELY ? "likely" : weight >= POSSIBLE ? "possible" : "minor";
  return (
    <li className="space-y-1 px-3 py-2">
      <div className="flex flex-wrap items-baseline gap-2">
        <Badge tone={level === "likely" ? "bad" : level === "possible" ? "warn" : "idle"}>
          {t(`differences.level.${level}`)}
        </Badge>
        <span className="min-w-0 break-words">{message}</span>
      </div>
      {hint && <p className="text-muted">{hint}</p>}
      {kind === "code" && files.map((each) => <File key={each.path} file={each} />)}
    </li>
  );
}

function File({ file: { path, change, diff, binary, cut } }: { file: DifferingFile }) {
  const { t } = useTranslation();
  const title = (
    <span className="flex items-center gap-2 font-mono text-xs break-all">
      <Badge tone={change === "removed" ? "bad" : change === "added" ? "ok" : "info"}>
        {t(`code.change.${change}`)}
      </Badge>
      {escapeName(path)}
    </span>
  );
  const whenOpen = () => (
    <div className="mt-1 space-y-1">
      {binary && <p className="text-muted">{t("code.binary")}</p>}
      {diff && (
        <pre
          tabIndex={0}
          aria-label={escapeName(path)}
          className="max-h-96 overflow-auto rounded-lg border bg-sunken p-3 font-mono text-xs leading-relaxed"
        >
          {diff.split("\n").map((line, index) => (
            <span key={index} className={getLineColor(line)}>
              {line}
              {"\n"}
            </span>
          ))}
        </pre>
      )}
      {cut && <p className="text-muted">{t("code.cut")}</p>}
    </div>
  );
  return <Collapsible title={title} wanted={false} whenOpen={whenOpen} />;
}

function getLineColor(line: string): string {
  if (line.startsWith("+")) return "text-ok-ink";
  if (line.startsWith("-")) return "text-bad-ink";
  return line.startsWith("@@") ? "text-info-ink" : "";
}

function Curve({ curve: { verdict, basis, message, hint, identicalUntil } }: { curve: CurveDivergence }) {
  const { t } = useTranslation();
  return (
    <li>
      <div className="flex flex-wrap items-baseline gap-2">
        <Badge tone={verdict === "parted" ? (basis === "sisters" ? "bad" : "warn") : "idle"}>
          {t(verdict === "too_few" ? "differences.tooFewPoints" : `differences.verdict.${verdict}`)}
        </Badge>
        <span className="min-w-0 break-words">{message}</span>
      </div>
      {hint && <p className="text-muted">{hint}</p>}
      {identicalUntil !== null && <p className="text-muted">{t("differences.identical", { step: identicalUntil })}</p>}
    </li>
  );
}

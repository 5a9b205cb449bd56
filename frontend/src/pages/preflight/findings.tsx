import { useTranslation } from "react-i18next";
import type { Finding } from "@/api/types";
import { Collapsible } from "@/ui/collapsible";
import { SeverityBadge } from "@/ui/severity-badge";
import { getSeverity } from "./matrix";

/** Problems first; passed checks are collapsed. */
export function Findings({ findings }: { findings: Finding[] }) {
  const { t } = useTranslation();
  const wrong = findings
    .filter(({ level }) => level !== "pass")
    .sort((a, b) => getSeverity(b.level) - getSeverity(a.level));
  const passed = findings.filter(({ level }) => level === "pass");
  return (
    <div className="space-y-2 text-sm">
      {findings.length === 0 && <p className="text-muted">{t("preflight.noFindings")}</p>}
      <FindingList findings={wrong} />
      {passed.length > 0 && (
        <Collapsible
          wanted={false}
          title={t("preflight.showPassed", { count: passed.length })}
          summaryClassName="text-muted"
        >
          <div className="mt-2">
            <FindingList findings={passed} />
          </div>
        </Collapsible>
      )}
    </div>
  );
}

function FindingList({ findings }: { findings: Finding[] }) {
  if (findings.length === 0) return null;
  return (
    <ul className="divide-y">
      {findings.map((finding, index) => (
        <li key={index} className="flex items-start gap-3 py-1.5">
          <SeverityBadge level={finding.level} />
          <div className="min-w-0 flex-1">
            <p className="break-words">
              {finding.message} <span className="font-mono text-xs text-muted">{finding.check}</span>
            </p>
            {finding.level !== "pass" && finding.hint && <p className="break-words text-muted">{finding.hint}</p>}
          </div>
        </li>
      ))}
    </ul>
  );
}

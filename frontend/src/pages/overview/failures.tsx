import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { Overview } from "@/api/types";
import { formatInteger } from "@/lib/format";
import { Badge } from "@/ui/badge";
import { Card } from "@/ui/card";
import { formatShare } from "./gpu-states";

/** Failures of a week by cause, and by the node that was blamed. */
export function Failures({ overview: { failures } }: { overview: Overview }) {
  const { t } = useTranslation();
  const { causes, causesLeftOut, nodes } = failures;
  const most = Math.max(...causes.map(({ attempts, tasks }) => Math.max(attempts, tasks)), 1);
  return (
    <Card title={t("overview.failures")} aside={<span className="text-sm text-muted">{t("overview.week")}</span>}>
      {causes.length === 0 && nodes.length === 0 && <p className="text-sm text-muted">{t("overview.noFailures")}</p>}
      <div className="space-y-4">
        {causes.length > 0 && (
          <ul className="max-h-72 space-y-2 overflow-y-auto text-sm" tabIndex={0} aria-label={t("overview.causes")}>
            {causes.map(({ cause, code, attempts, tasks, message, example }) => (
              <li key={cause}>
                <div className="flex items-baseline justify-between gap-3">
                  <Link
                    to={`/training?cause=${encodeURIComponent(cause)}`}
                    state={{ cause: message }}
                    className="min-w-0 truncate hover:text-accent-ink hover:underline"
                    title={example || code}
                  >
                    {message || code}
                  </Link>
                  <span className="shrink-0 whitespace-nowrap text-muted tabular-nums">
                    {[t("counted.attempts", { count: attempts }), t("counted.tasks", { count: tasks })].join(
                      t("queue.comma"),
                    )}
                  </span>
                </div>
                <div className="mt-1 h-1.5 rounded-full bg-sunken">
                  <div
                    className="h-full rounded-full bg-bad"
                    style={{ width: `${(Math.max(attempts, tasks) / most) * 100}%` }}
                  />
                </div>
              </li>
            ))}
            {causesLeftOut > 0 && (
              <li className="text-muted">{t("overview.furtherCauses", { count: causesLeftOut })}</li>
            )}
          </ul>
        )}
        {nodes.length > 0 && (
          <div>
            <h3 className="mb-1 text-xs font-medium text-muted">
              {t("overview.nodes")} · {formatInteger(failures.nodesBlamed)}
            </h3>
            <ul className="max-h-64 divide-y overflow-y-auto text-sm" tabIndex={0} aria-label={t("overview.nodes")}>
              {nodes.map(({ environmentId, name, starts, failures: count, standsOut }) => (
                <li key={environmentId} className="flex items-center justify-between gap-3 py-1">
                  <span className="flex min-w-0 items-center gap-2">
                    <Link
                      to={`/environments/${environmentId}`}
                      className="truncate font-medium hover:text-accent-ink hover:underline"
                    >
                      {name}
                    </Link>
                    {standsOut && (
                      <Badge tone="bad" title={t("overview.standsOutHint")}>
                        {t("overview.standsOut")}
                      </Badge>
                    )}
                  </span>
                  <span className="shrink-0 text-muted tabular-nums">
                    {t("overview.ofStarts", { failures: formatInteger(count), count: starts })}
                    <span className="ml-2 inline-block w-12 text-right">{formatShare(count, starts)}</span>
                  </span>
                </li>
              ))}
            </ul>
          </div>
        )}
      </div>
    </Card>
  );
}

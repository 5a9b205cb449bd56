import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { Span, TimelineEnvironment } from "@/api/types";
import { formatDateTime } from "@/lib/format";
import { Pager } from "@/ui/pager";
import { MEDIUM_COLUMN, ROW, Table } from "@/ui/table";
import { formatSpanName } from "./span";
import { positionSpan, type Window } from "./window";

const PER_PAGE = 50;

/** Without a span: nothing is known. */
interface Line {
  environment: TimelineEnvironment;
  span?: Span;
}

/** The same as a table, for screen readers and exact times. */
export function SpanList({ environments, window }: { environments: TimelineEnvironment[]; window: Window }) {
  const { t } = useTranslation();
  const [page, setPage] = useState(1);
  const lines = environments.flatMap((environment): Line[] => {
    const spans = environment.spans.filter((span) => positionSpan(span, window));
    return spans.length > 0 ? spans.map((span) => ({ environment, span })) : [{ environment }];
  });
  const pages = Math.max(1, Math.ceil(lines.length / PER_PAGE));
  const at = Math.min(page, pages);
  return (
    <>
      <Table
        label={t("app.timeline")}
        columns={[
          { label: t("timeline.environment") },
          { label: t("environments.zone"), className: MEDIUM_COLUMN },
          { label: t("timeline.what") },
          { label: t("timeline.who") },
          { label: t("timeline.from") },
          { label: t("timeline.to") },
        ]}
      >
        {lines.slice((at - 1) * PER_PAGE, at * PER_PAGE).map(({ environment, span }, index) => (
          <tr key={index} className={ROW}>
            <th scope="row" className="font-medium break-words">
              {environment.name}
            </th>
            <td className={MEDIUM_COLUMN}>{environment.zone}</td>
            {span ? (
              <>
                <td className="whitespace-nowrap">{t(`timeline.kindOf.${span.kind}`)}</td>
                <td>
                  {span.taskId ? (
                    <Link to={`/training/${span.taskId}`} className="text-accent-ink hover:underline">
                      {formatSpanName(t, span)}
                    </Link>
                  ) : (
                    formatSpanName(t, span)
                  )}
                </td>
                <td className="whitespace-nowrap tabular-nums">
                  {span.from === null ? t("timeline.noEnd") : formatDateTime(span.from)}
                </td>
                <td className="whitespace-nowrap tabular-nums">
                  {span.to === null ? t("timeline.noEnd") : formatDateTime(span.to)}
                  {!span.sure && <div className="text-xs text-muted">{t("timeline.unsure")}</div>}
                </td>
              </>
            ) : (
              <td colSpan={4} className="text-muted">
                {t("environments.free")}
              </td>
            )}
          </tr>
        ))}
      </Table>
      <Pager count={t("environments.count", { count: environments.length })} pages={pages} page={at} onPage={setPage} />
    </>
  );
}

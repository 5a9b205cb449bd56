import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { momentsQuery } from "@/api/schedules";
import { formatMoment } from "./moments";

/** The next moments of an expression, in its time zone. What is wrong with it is shown by its fields. */
export function NextMoments({ cron, zone }: { cron: string; zone: string }) {
  const { t } = useTranslation();
  const moments = useQuery(momentsQuery(cron, zone));
  if (!moments.data) return <p className="text-sm text-muted">{moments.isError ? "–" : t("app.loading")}</p>;
  return (
    <ol aria-label={t("schedule.nextMoments")} className="space-y-1 text-sm tabular-nums">
      {moments.data.map((moment) => (
        <li key={moment}>
          <time dateTime={moment}>{formatMoment(moment, zone)}</time>
        </li>
      ))}
    </ol>
  );
}

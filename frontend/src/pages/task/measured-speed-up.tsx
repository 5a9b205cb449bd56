import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { scalingQuery } from "@/api/tasks";
import { formatCount } from "@/lib/format";
import { Card } from "@/ui/card";
import { ScalingEstimate } from "@/ui/scaling-estimate";

/** The expected and the measured speed-up. It is requested again when `points` has doubled. */
export function MeasuredSpeedUp({ id, points }: { id: string; points: number }) {
  const { t } = useTranslation();
  const round = Math.floor(Math.log2(points + 1));
  const found = useQuery({ ...scalingQuery(id, round), placeholderData: keepPreviousData });
  const { expected, tokensPerSecond, offBy } = found.data ?? {};
  if (!expected) return null;
  return (
    <Card title={t("scaling.title")}>
      {tokensPerSecond != null && offBy != null && (
        <p className="mb-3 text-sm font-medium">
          {t("scaling.measured", { value: formatCount(tokensPerSecond) })}{" "}
          {t(offBy === 0 ? "scaling.within" : offBy > 0 ? "scaling.above" : "scaling.below", {
            share: Math.round(Math.abs(offBy) * 100),
          })}
        </p>
      )}
      <ScalingEstimate scaling={expected} />
    </Card>
  );
}

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { recommendQuery } from "@/api/recommend";
import type { Recommendation } from "@/api/types";
import { Badge } from "@/ui/badge";
import { Collapsible } from "@/ui/collapsible";
import type { Draft } from "./draft";
import { useStableValue } from "./recommendation";

type Scenario = Recommendation["scenes"][number];

/** The table of scenarios in the requirements, with the row of the selected environments highlighted. */
export default function Scenarios({ draft }: { draft: Draft }) {
  const { t } = useTranslation();
  const { selected, master, modelId } = draft;
  const request = useStableValue({
    modelParameters: undefined,
    modelId: modelId || undefined,
    environmentIds: selected,
    masterNode: master || undefined,
  });
  const { data } = useQuery({ ...recommendQuery(request), placeholderData: keepPreviousData });
  const best = data?.scenes.findLast(({ fits }) => fits);
  if (!data || !best) return null;
  return (
    <div className="rounded-xl border bg-surface px-4 py-3">
      <Collapsible
        title={
          <span>
            {t("create.scenario.fits")}
            <span className="font-medium">{`${best.name} · ${formatFrameworks(best)} · ${best.feature}`}</span>
          </span>
        }
        wanted={false}
        summaryClassName="text-sm"
      >
        <div className="mt-3 overflow-x-auto">
          <table className="w-full text-left text-sm">
            <thead className="text-muted">
              <tr>
                <th className="py-1 pr-3 font-medium">{t("create.scenario.name")}</th>
                <th className="py-1 pr-3 font-medium">{t("create.scenario.nodes")}</th>
                <th className="py-1 pr-3 font-medium">{t("create.scenario.gpus")}</th>
                <th className="py-1 pr-3 font-medium">{t("create.scenario.frameworks")}</th>
                <th className="py-1 font-medium">{t("create.scenario.feature")}</th>
              </tr>
            </thead>
            <tbody>
              {data.scenes.map((each) => (
                <tr key={each.code} className="border-t" aria-current={each.fits || undefined}>
                  <td className="py-1 pr-3">
                    {each.name} {each.fits && <Badge tone="ok">{t("create.inUse")}</Badge>}
                  </td>
                  <td className="py-1 pr-3 tabular-nums">{formatBounds(each.nodes)}</td>
                  <td className="py-1 pr-3 tabular-nums">{formatBounds(each.gpus)}</td>
                  <td className="py-1 pr-3">{formatFrameworks(each)}</td>
                  <td className="py-1">{each.feature}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Collapsible>
    </div>
  );
}

function formatFrameworks({ frameworks }: Scenario): string {
  return frameworks.map(({ label }) => label).join("/");
}

/** Formats a range: `1`, `2-4`, `8+`. */
function formatBounds({ min, max }: Scenario["nodes"]): string {
  if (max == null) return `${min}+`;
  return min === max ? String(min) : `${min}-${max}`;
}

import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { crossZoneQuery } from "@/api/task-templates";
import type { Environment } from "@/api/types";
import { formatNumber } from "@/lib/format";
import { Collapsible } from "@/ui/collapsible";
import { TextLink } from "@/ui/text-link";

/** Advantages and disadvantages of training across zones, with measurements of a pre-flight if there are any. */
export default function CrossZoneNote({ chosen }: { chosen: Environment[] }) {
  const { t } = useTranslation();
  const { data: links = [] } = useQuery(crossZoneQuery(chosen.map(({ id }) => id)));
  const slowest = links.toSorted((a, b) => b.rttMs - a.rttMs)[0];
  const narrowest = links.flatMap(({ bandwidthMbps }) => bandwidthMbps ?? []).toSorted((a, b) => a - b)[0];
  return (
    <Collapsible title={t("create.crossZoneNote.title")} wanted summaryClassName="w-fit text-sm font-medium">
      <div className="mt-2 grid gap-3 text-sm sm:grid-cols-3">
        <Part title={t("create.crossZoneNote.for")} items={t("create.crossZoneNote.forItems").split("\n")} />
        <div>
          <Part
            title={t("create.crossZoneNote.against")}
            items={[
              slowest
                ? t("create.crossZoneNote.measured", { rtt: formatNumber(slowest.rttMs) })
                : t("create.crossZoneNote.typical"),
              narrowest === undefined
                ? t("create.crossZoneNote.bandwidth")
                : t("create.crossZoneNote.bandwidthMeasured", { mbps: formatNumber(narrowest) }),
              t("create.crossZoneNote.cost"),
            ]}
          />
          {slowest && <TextLink to={`/preflight/${slowest.preflightId}`}>{t("create.crossZoneNote.test")}</TextLink>}
        </div>
        <Part title={t("create.crossZoneNote.suits")} items={t("create.crossZoneNote.suitsItems").split("\n")} />
      </div>
    </Collapsible>
  );
}

function Part({ title, items }: { title: string; items: string[] }) {
  return (
    <div>
      <h3 className="font-medium">{title}</h3>
      <ul className="list-disc space-y-0.5 pl-4">
        {items.map((item) => (
          <li key={item}>{item}</li>
        ))}
      </ul>
    </div>
  );
}

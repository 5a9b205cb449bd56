import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { limitsQuery, memberLimitsQuery } from "@/api/limits";
import type { Me } from "@/api/types";
import { formatGpuTime, formatMeasurement, formatMoney } from "@/lib/format";
import { LimitUsage } from "@/pages/settings/limit-usage";
import { Card } from "@/ui/card";
import { LoadError } from "@/ui/errors";

type Project = Me["projects"][number];

/** What the user's projects may still use, by the user's limits and the projects'. */
export function RemainingQuota({ me }: { me: Me }) {
  const { t } = useTranslation();
  return (
    <Card title={t("overview.mine.left")}>
      <div
        className="max-h-96 space-y-4 overflow-y-auto"
        tabIndex={0}
        role="group"
        aria-label={t("overview.mine.left")}
      >
        {me.projects.map((project) => (
          <ProjectQuota key={project.id} project={project} username={me.username} />
        ))}
        {me.projects.length === 0 && <p className="text-sm text-muted">{t("overview.mine.noProjects")}</p>}
      </div>
    </Card>
  );
}

function ProjectQuota({ project, username }: { project: Project; username: string }) {
  const { t } = useTranslation();
  const limits = useQuery(limitsQuery(project.id));
  const own = useQuery(memberLimitsQuery(project.id, username));
  const failed = [limits, own].find(({ isError }) => isError);
  if (failed) return <LoadError error={failed.error} retry={() => void failed.refetch()} />;
  if (!limits.data || own.isPending) return null;
  const { use, currency, mostGpus, mostTasks, budget } = limits.data;
  const mine = own.data;
  const costs = (value: number) => formatMoney(value, currency);
  const hours = (value: number) => formatGpuTime(t, value);
  const rows = [
    { what: "gpus", whose: "you", used: mine?.use.gpus, most: mine?.mostGpus },
    { what: "gpus", whose: "project", used: use.gpus, most: mostGpus },
    { what: "tasks", whose: "you", used: mine?.use.tasks, most: mine?.mostTasks },
    { what: "tasks", whose: "project", used: use.tasks, most: mostTasks },
    { what: "gpuHours", whose: "you", used: mine?.use.gpuHours, most: mine?.gpuHours, shown: hours },
    { what: "gpuHours", whose: "project", used: use.gpuHours, most: limits.data.gpuHours, shown: hours },
    { what: "budget", whose: "project", used: use.cost, most: budget, shown: costs },
  ] as const;
  const limited = rows.flatMap((row) =>
    row.used === undefined || row.most === undefined || row.most === null
      ? []
      : [{ shown: formatMeasurement, ...row, used: row.used, most: row.most }],
  );
  return (
    <section aria-label={project.name} className="space-y-2 text-sm">
      <h3 className="font-medium">{project.name}</h3>
      {limited.length === 0 && <p className="text-muted">{t("overview.mine.noLimits")}</p>}
      {limited.map(({ what, whose, used, most, shown }) => (
        <LimitUsage
          key={what + whose}
          name={t(`overview.mine.whose.${whose}`, { what: t(`limits.${what}`) })}
          used={used}
          most={most}
          shown={shown}
          note={t("overview.mine.remains", { rest: shown(Math.max(0, most - used)) })}
        />
      ))}
    </section>
  );
}

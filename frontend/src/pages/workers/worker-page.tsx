import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { useTranslation } from "react-i18next";
import { Link, useParams } from "react-router";
import { ApiError } from "@/api/errors";
import type { Worker } from "@/api/types";
import { workerQuery } from "@/api/workers";
import { formatDateTime } from "@/lib/format";
import { ButtonLink } from "@/ui/button";
import { Card } from "@/ui/card";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { Page } from "@/ui/page";
import { DefinitionList } from "@/ui/table";
import { WorkerBadge } from "@/ui/worker-badge";
import { EnvironmentPreview } from "./environment-preview";
import { GpuUsageCell, HostUsageCell, ProcessCell, RankCell } from "./worker-cells";

const History = lazy(() => import("@/ui/telemetry/machine-history"));

export function Component() {
  const { t } = useTranslation();
  const { id = "" } = useParams();
  const worker = useQuery(workerQuery(id));
  if (worker.error instanceof ApiError && worker.error.status === 404) {
    return (
      <Page title={t("workers.notFound")}>
        <EmptyState title={t("workers.notFound")} hint={t("workers.notFoundHint")}>
          <ButtonLink look="primary" to="/workers">
            {t("workers.backToList")}
          </ButtonLink>
        </EmptyState>
      </Page>
    );
  }
  if (worker.data) return <WorkerPage key={id} worker={worker.data} />;
  return worker.isError ? <LoadError error={worker.error} retry={() => void worker.refetch()} /> : <Loading />;
}

function WorkerPage({ worker }: { worker: Worker }) {
  const { t } = useTranslation();
  return (
    <Page
      title={worker.id}
      heading={
        <span className="flex flex-wrap items-center gap-x-3 gap-y-1">
          {worker.id}
          <WorkerBadge status={worker.status} />
        </span>
      }
      actions={<EnvironmentPreview id={worker.id} />}
    >
      <div className="grid items-start gap-4 lg:grid-cols-[22rem_minmax(0,1fr)]">
        <Card title={t("workers.facts")}>
          <DefinitionList
            facts={[
              [t("workers.node"), `${worker.node}${worker.ip ? ` · ${worker.ip}` : ""}`],
              ["GPU", worker.gpu == null ? t("workers.cpu") : t("workers.gpu", { number: worker.gpu })],
              [
                t("workers.group"),
                worker.group ? (
                  <Link
                    key="group"
                    to={`/workers/groups#${worker.group.id}`}
                    className="text-accent-ink hover:underline"
                  >
                    {worker.group.name}
                  </Link>
                ) : (
                  t("workers.noGroup")
                ),
              ],
              [t("workers.rank"), <RankCell key="rank" worker={worker} />],
              [t("workers.process"), <ProcessCell key="process" worker={worker} />],
              [t("workers.usage"), <GpuUsageCell key="use" worker={worker} />],
              [t("workers.host"), <HostUsageCell key="host" worker={worker} />],
              [
                t("workers.inEnvironment"),
                worker.environmentId ? (
                  <Link
                    key="environment"
                    to={`/environments/${worker.environmentId}`}
                    className="text-accent-ink hover:underline"
                  >
                    {worker.environmentId}
                  </Link>
                ) : (
                  "–"
                ),
              ],
              [t("workers.lastHeartbeat"), worker.lastHeartbeatAt ? formatDateTime(worker.lastHeartbeatAt) : "–"],
              [t("workers.version"), worker.version || "–"],
            ]}
          />
        </Card>
        <Suspense fallback={<Loading />}>
          <History kind="worker" id={worker.id} />
        </Suspense>
      </div>
    </Page>
  );
}

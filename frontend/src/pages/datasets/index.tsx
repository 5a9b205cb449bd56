import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { datasetsQuery } from "@/api/inventory";
import { isMaintainer, meQuery } from "@/api/session";
import type { Dataset, DatasetVersion } from "@/api/types";
import { formatBytes, formatCount, formatDateTime } from "@/lib/format";
import { escapeName } from "@/lib/escape-name";
import { Badge, Callout, type Tone } from "@/ui/badge";
import { Card } from "@/ui/card";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { Page } from "@/ui/page";
import { ProgressBar } from "@/ui/progress-bar";
import { AddDataset, AddVersion } from "./add-dataset";

export function Component() {
  const { t } = useTranslation();
  const me = useQuery(meQuery).data;
  const datasets = useQuery(datasetsQuery);
  const mayAdd = me && (me.isAdministrator || me.projects.some(({ id }) => isMaintainer(me, id)));
  return (
    <Page title={t("datasets.title")} actions={mayAdd && <AddDataset me={me} />}>
      {datasets.isError && <LoadError error={datasets.error} retry={() => void datasets.refetch()} />}
      {datasets.isPending && <Loading />}
      {datasets.data?.length === 0 && <EmptyState title={t("datasets.empty")} hint={t("datasets.emptyHint")} />}
      <div className="space-y-4">
        {datasets.data?.map((dataset) => (
          <DatasetCard key={dataset.id} dataset={dataset} mayAdd={isMaintainer(me, dataset.projectId)} />
        ))}
      </div>
    </Page>
  );
}

function DatasetCard({ dataset, mayAdd }: { dataset: Dataset; mayAdd: boolean }) {
  const { t } = useTranslation();
  return (
    <Card
      id={dataset.id}
      title={dataset.name}
      aside={
        <span className="flex flex-wrap items-center gap-2">
          <Badge tone={dataset.projectId ? "idle" : "info"}>{dataset.projectId ?? t("datasets.shared")}</Badge>
          {mayAdd && <AddVersion dataset={dataset} />}
        </span>
      }
    >
      <p className="font-mono text-xs text-muted">{dataset.id}</p>
      {dataset.description && <p className="mt-1 text-sm">{dataset.description}</p>}
      <ul className="mt-3 divide-y border-t text-sm" aria-label={t("datasets.versions")}>
        {dataset.versions.map((version) => (
          <VersionItem key={version.id} version={version} />
        ))}
      </ul>
    </Card>
  );
}

const TONE: Record<DatasetVersion["status"], Tone> = { preparing: "info", ready: "ok", failed: "bad" };

function VersionItem({ version }: { version: DatasetVersion }) {
  const { t } = useTranslation();
  return (
    <li className="space-y-1.5 py-2.5">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
        <span className="font-medium">{version.name}</span>
        <Badge tone={TONE[version.status]}>{t(`datasets.statusOf.${version.status}`)}</Badge>
        {version.status === "ready" && (
          <span className="text-muted">
            {t("datasets.tokens", {
              train: formatCount(version.trainTokens),
              valid: formatCount(version.validTokens),
              size: formatBytes(version.sizeBytes),
            })}
          </span>
        )}
        <time dateTime={version.createdAt} className="text-muted sm:ml-auto">
          {formatDateTime(version.createdAt)}
        </time>
      </div>
      <p className="font-mono text-xs break-all text-muted">
        {version.id} · {escapeName(version.source)}
        {version.sha256 && ` · sha256 ${version.sha256.slice(0, 12)}`}
      </p>
      {version.status === "preparing" && (
        <div className="flex items-center gap-3">
          <div className="flex-1">
            <ProgressBar label={t("datasets.preparing", { name: version.name })} value={version.progress} />
          </div>
          <span className="text-muted tabular-nums">{Math.floor(version.progress * 100)}%</span>
        </div>
      )}
      {version.error && (
        <Callout tone="bad">
          {version.error.message} {version.error.hint}
        </Callout>
      )}
    </li>
  );
}

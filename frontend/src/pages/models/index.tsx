import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { modelsQuery } from "@/api/inventory";
import type { Model } from "@/api/types";
import { formatCount } from "@/lib/format";
import { Badge } from "@/ui/badge";
import { Card } from "@/ui/card";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { Page } from "@/ui/page";
import { DefinitionList } from "@/ui/table";

export function Component() {
  const { t } = useTranslation();
  const models = useQuery(modelsQuery);
  return (
    <Page title={t("models.title")}>
      {models.isError && <LoadError error={models.error} retry={() => void models.refetch()} />}
      {models.isPending && <Loading />}
      {models.data?.length === 0 && <EmptyState title={t("models.empty")} hint={t("models.emptyHint")} />}
      <div className="grid gap-4 lg:grid-cols-2">
        {models.data?.map((model) => (
          <ModelCard key={model.id} model={model} />
        ))}
      </div>
    </Page>
  );
}

function ModelCard({ model }: { model: Model }) {
  const { t } = useTranslation();
  return (
    <Card
      id={model.id}
      title={model.name}
      aside={
        <span className="flex flex-wrap items-center gap-2">
          <Badge>{t("models.recipe", { recipe: model.recipe })}</Badge>
          <Badge tone={model.projectId ? "idle" : "info"}>{model.projectId ?? t("datasets.shared")}</Badge>
        </span>
      }
    >
      <p className="font-mono text-xs text-muted">{model.id}</p>
      {model.description && <p className="mt-1 text-sm">{model.description}</p>}
      {model.parameters != null && (
        <p className="mt-1 text-sm text-muted">{t("models.parameters", { size: formatCount(model.parameters) })}</p>
      )}
      <details className="mt-3 text-sm">
        <summary className="text-muted">{t("models.defaults")}</summary>
        <DefinitionList
          className="mt-2 sm:columns-2 sm:gap-8"
          facts={Object.entries(model.defaults).map(([name, value]) => [name, String(value)])}
        />
      </details>
    </Card>
  );
}

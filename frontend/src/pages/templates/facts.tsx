import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { meQuery } from "@/api/session";
import type { SavedTemplate } from "@/api/types";
import { formatAge, formatDateTime } from "@/lib/format";
import { Badge } from "@/ui/badge";
import { ButtonLink } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { Page } from "@/ui/page";

/** Whose template it is: a project's, or the platform's. */
export function OwnerBadge({ projectId }: { projectId: string | null }) {
  const { t } = useTranslation();
  const projects = useQuery(meQuery).data?.projects;
  if (projectId === null)
    return (
      <Badge tone="info" title={t("savedTemplate.platformHint")}>
        {t("savedTemplate.platform")}
      </Badge>
    );
  return <span className="break-words">{projects?.find(({ id }) => id === projectId)?.name ?? projectId}</span>;
}

/** When a task was last created from a template, with a link to it. */
export function LastUse({ template: { lastUsedAt, lastTaskId }, now }: { template: SavedTemplate; now: number }) {
  const { t } = useTranslation();
  if (!lastUsedAt) return <span className="text-muted">{t("savedTemplate.neverUsed")}</span>;
  return (
    <Link
      to={`/training/${lastTaskId ?? ""}`}
      title={formatDateTime(lastUsedAt)}
      className="text-accent-ink hover:underline"
    >
      {formatAge(lastUsedAt, now)}
    </Link>
  );
}

export function TemplateNotFound() {
  const { t } = useTranslation();
  return (
    <Page title={t("savedTemplate.notFound")}>
      <EmptyState title={t("savedTemplate.notFound")} hint={t("savedTemplate.notFoundHint")}>
        <ButtonLink look="primary" to="/templates">
          {t("app.templates")}
        </ButtonLink>
      </EmptyState>
    </Page>
  );
}

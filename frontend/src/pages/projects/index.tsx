import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { projectSummariesQuery } from "@/api/projects";
import { meQuery } from "@/api/session";
import type { ProjectOrdering, ProjectSummary } from "@/api/types";
import { formatDateTime } from "@/lib/format";
import { useFilters } from "@/lib/use-filters";
import { useTableSettings } from "@/lib/use-table-settings";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { SearchBox } from "@/ui/filters";
import { Page } from "@/ui/page";
import { Pager } from "@/ui/pager";
import { MEDIUM_COLUMN, ROW, Table, WIDE_COLUMN } from "@/ui/table";
import { TextLink } from "@/ui/text-link";
import { CreateProject } from "../settings/create-project";

const NUMBER = "text-right tabular-nums";

/** All projects with what is in them, for administrators. Others see those in which they have a role. */
export function Component() {
  const { t } = useTranslation();
  const { filters, page, set } = useFilters(["search"]);
  const { ordering, onOrder } = useTableSettings(["name", "createdAt"]);
  const projects = useQuery(
    projectSummariesQuery({
      search: filters.search ?? "",
      ordering: ordering as ProjectOrdering | undefined,
      page,
    }),
  );
  const isAdministrator = useQuery(meQuery).data?.isAdministrator ?? false;
  const found = projects.data;
  return (
    <Page title={t("app.projects")} actions={isAdministrator && <CreateProject look="primary" />}>
      <p className="mb-3 max-w-3xl text-sm text-muted">
        {t(isAdministrator ? "projects.lead" : "projects.leadOfMembers")}
      </p>
      <div className="mb-3">
        <SearchBox
          label={t("projects.search")}
          value={filters.search ?? ""}
          onSettled={(text) => set("search", text)}
        />
      </div>
      {projects.isError && <LoadError error={projects.error} retry={() => void projects.refetch()} />}
      {projects.isPending && <Loading />}
      {found?.items.length === 0 && <EmptyState title={t(filters.search ? "projects.noneFound" : "projects.none")} />}
      {found && found.items.length > 0 && (
        <>
          <Table
            label={t("app.projects")}
            ordering={ordering}
            onOrder={onOrder}
            columns={[
              { label: t("projects.name"), order: "name" },
              { label: t("projects.members"), className: "text-right" },
              { label: t("projects.serviceAccounts"), className: `text-right ${MEDIUM_COLUMN}` },
              { label: t("projects.runningTasks"), className: "text-right" },
              { label: t("projects.gpus"), className: `text-right ${MEDIUM_COLUMN}` },
              { label: t("projects.createdAt"), className: WIDE_COLUMN, order: "-createdAt" },
              { label: t("projects.queue"), className: MEDIUM_COLUMN },
            ]}
          >
            {found.items.map((project) => (
              <ProjectRow key={project.id} project={project} />
            ))}
          </Table>
          <Pager
            count={t("projects.count", { count: found.total })}
            pages={Math.ceil(found.total / found.pageSize)}
            page={page}
            onPage={(next) => set("page", String(next))}
          />
        </>
      )}
    </Page>
  );
}

function ProjectRow({ project }: { project: ProjectSummary }) {
  const { t } = useTranslation();
  const { id, name, members, serviceAccounts, runningTasks, gpus, createdAt } = project;
  return (
    <tr className={ROW}>
      <td>
        <Link to={`/administration/projects/${id}`} className="font-medium break-all text-accent-ink hover:underline">
          {name}
        </Link>
        <span className="block font-mono text-xs break-all text-muted">{id}</span>
      </td>
      <td className={NUMBER}>{t("projects.number", { count: members })}</td>
      <td className={`${NUMBER} ${MEDIUM_COLUMN}`}>{t("projects.number", { count: serviceAccounts })}</td>
      <td className={NUMBER}>{t("projects.number", { count: runningTasks })}</td>
      <td className={`${NUMBER} ${MEDIUM_COLUMN}`}>{t("projects.number", { count: gpus })}</td>
      <td className={`${WIDE_COLUMN} whitespace-nowrap`}>{formatDateTime(createdAt)}</td>
      <td className={MEDIUM_COLUMN}>
        <TextLink to={`/queue?project=${id}`} aria-label={t("projects.queueOf", { name })}>
          {t("app.queue")}
        </TextLink>
      </td>
    </tr>
  );
}

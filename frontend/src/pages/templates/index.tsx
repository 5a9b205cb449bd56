import { useQuery } from "@tanstack/react-query";
import { BookmarkPlus } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { savedTemplatesQuery, type TemplateFilters, TEMPLATES_PER_PAGE } from "@/api/saved-templates";
import { canCreate, meQuery } from "@/api/session";
import type { SavedTemplate } from "@/api/types";
import { formatAge, formatDateTime } from "@/lib/format";
import { useNow } from "@/lib/hooks";
import { useFilters } from "@/lib/use-filters";
import { Badge } from "@/ui/badge";
import { ButtonLink } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { FilterSelect, SearchBox } from "@/ui/filters";
import { Page } from "@/ui/page";
import { Pager } from "@/ui/pager";
import { MEDIUM_COLUMN, ROW, Table, WIDE_COLUMN } from "@/ui/table";
import { LastUse, OwnerBadge } from "./facts";

/** Parameters that a row names. */
const MAX_NAMED = 6;

export function Component() {
  const { t } = useTranslation();
  const me = useQuery(meQuery).data;
  const { filters, page, set, of } = useFilters(["search", "project", "ordering"] as const);
  const found = useQuery(savedTemplatesQuery({ ...filters, page } as TemplateFilters));
  const filtered = Boolean(filters.search ?? filters.project);
  return (
    <Page
      title={t("app.templates")}
      actions={
        canCreate(me) && (
          <ButtonLink look="primary" to="/templates/create">
            <BookmarkPlus />
            {t("savedTemplate.add")}
          </ButtonLink>
        )
      }
    >
      <p className="mb-4 max-w-3xl text-sm text-muted">{t("savedTemplate.lead")}</p>
      <div className="mb-4 flex flex-wrap gap-2">
        <SearchBox
          label={t("savedTemplate.search")}
          value={of("search").value}
          onSettled={(text) => set("search", text)}
        />
        {me && me.projects.length > 1 && (
          <FilterSelect
            label={t("savedTemplate.project")}
            any={t("savedTemplate.anyProject")}
            options={me.projects.map(({ id, name }) => [id, name])}
            {...of("project")}
          />
        )}
      </div>
      {found.isError && <LoadError error={found.error} retry={() => void found.refetch()} />}
      {found.isPending && <Loading />}
      {found.data?.total === 0 && (
        <section className="rounded-xl border bg-surface shadow-xs">
          {filtered ? (
            <EmptyState title={t("savedTemplate.noneFound")} />
          ) : (
            <EmptyState title={t("savedTemplate.empty")} hint={t("savedTemplate.emptyHint")}>
              <ButtonLink to="/training">{t("app.tasks")}</ButtonLink>
            </EmptyState>
          )}
        </section>
      )}
      {found.data && found.data.total > 0 && (
        <>
          <TemplateTable
            templates={found.data.items}
            ordering={filters.ordering}
            onOrder={(ordering) => set("ordering", ordering)}
          />
          <Pager
            count={t("savedTemplate.count", { count: found.data.total })}
            pages={Math.ceil(found.data.total / TEMPLATES_PER_PAGE)}
            page={page}
            onPage={(next) => set("page", String(next))}
          />
        </>
      )}
    </Page>
  );
}

interface TableProps {
  templates: SavedTemplate[];
  ordering: string | undefined;
  onOrder: (ordering: string) => void;
}

function TemplateTable({ templates, ordering, onOrder }: TableProps) {
  const { t } = useTranslation();
  const now = useNow();
  return (
    <Table
      label={t("app.templates")}
      ordering={ordering}
      onOrder={onOrder}
      columns={[
        { label: t("savedTemplate.name"), order: "name" },
        { label: t("savedTemplate.project") },
        { label: t("savedTemplate.parameters"), className: MEDIUM_COLUMN },
        { label: t("savedTemplate.savedBy"), className: WIDE_COLUMN },
        { label: t("savedTemplate.changed"), className: WIDE_COLUMN, order: "-updatedAt" },
        { label: t("savedTemplate.lastUse"), className: MEDIUM_COLUMN },
      ]}
    >
      {templates.map((each) => (
        <tr key={each.id} className={ROW}>
          <td className="w-full max-w-0 md:w-2/5">
            <Link
              to={`/templates/${each.id}`}
              className="font-medium break-words hover:text-accent-ink hover:underline"
            >
              {each.name}
            </Link>
            {each.description && <div className="mt-0.5 line-clamp-2 text-xs text-muted">{each.description}</div>}
          </td>
          <td>
            <OwnerBadge projectId={each.projectId} />
          </td>
          <td className={MEDIUM_COLUMN}>
            <ParameterNames template={each} />
          </td>
          <td className={WIDE_COLUMN}>{each.createdBy || "–"}</td>
          <td className={`${WIDE_COLUMN} whitespace-nowrap`} title={formatDateTime(each.updatedAt)}>
            {formatAge(each.updatedAt, now)}
          </td>
          <td className={`${MEDIUM_COLUMN} whitespace-nowrap`}>
            <LastUse template={each} now={now} />
          </td>
        </tr>
      ))}
    </Table>
  );
}

function ParameterNames({ template: { parameters } }: { template: SavedTemplate }) {
  if (parameters.length === 0) return <span className="text-muted">–</span>;
  return (
    <span className="flex max-w-80 flex-wrap gap-1">
      {parameters.slice(0, MAX_NAMED).map(({ name, label }) => (
        <Badge key={name} title={label}>
          {name}
        </Badge>
      ))}
      {parameters.length > MAX_NAMED && <Badge>+{parameters.length - MAX_NAMED}</Badge>}
    </span>
  );
}

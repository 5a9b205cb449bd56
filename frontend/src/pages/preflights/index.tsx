import { useQuery } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link, useSearchParams } from "react-router";
import { PREFLIGHTS_PER_PAGE, preflightsQuery } from "@/api/preflights";
import type { PreflightBrief } from "@/api/types";
import { readPageNumber, setFilter } from "@/lib/url-filters";
import { formatAge, formatDateTime, formatDuration, getSecondsBetween } from "@/lib/format";
import { useNow } from "@/lib/hooks";
import { ButtonLink } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { SeverityBadge } from "@/ui/severity-badge";
import { Page } from "@/ui/page";
import { Pager } from "@/ui/pager";
import { PreflightStatus } from "@/ui/preflight-status";
import { MEDIUM_COLUMN, ROW, Table, WIDE_COLUMN } from "@/ui/table";

export function Component() {
  const { t } = useTranslation();
  const [params, setParams] = useSearchParams();
  const page = readPageNumber(params);
  const found = useQuery(preflightsQuery(page));
  return (
    <Page title={t("preflight.title")} actions={<NewPreflight />}>
      <p className="mb-4 text-sm text-muted">{t("preflight.lead")}</p>
      {found.isError && <LoadError error={found.error} retry={() => void found.refetch()} />}
      {found.isPending && <Loading />}
      {found.data?.total === 0 && (
        <section className="rounded-xl border bg-surface shadow-xs">
          <EmptyState title={t("preflight.empty")} hint={t("preflight.emptyHint")}>
            <NewPreflight />
          </EmptyState>
        </section>
      )}
      {found.data && found.data.total > 0 && (
        <>
          <PreflightTable preflights={found.data.items} />
          <Pager
            count={t("preflight.count", { count: found.data.total })}
            pages={Math.ceil(found.data.total / PREFLIGHTS_PER_PAGE)}
            page={page}
            onPage={(next) => setParams((now) => setFilter(now, "page", String(next)), { replace: true })}
          />
        </>
      )}
    </Page>
  );
}

function NewPreflight() {
  const { t } = useTranslation();
  return (
    <ButtonLink look="primary" to="/preflight/create">
      <Plus />
      {t("preflight.create")}
    </ButtonLink>
  );
}

function PreflightTable({ preflights }: { preflights: PreflightBrief[] }) {
  const { t } = useTranslation();
  const now = useNow();
  return (
    <Table
      label={t("preflight.title")}
      columns={[
        { label: t("preflight.environments") },
        { label: t("preflight.outcome") },
        { label: t("preflight.level"), className: MEDIUM_COLUMN },
        { label: t("preflight.created"), className: MEDIUM_COLUMN },
        { label: t("preflight.duration"), className: `${WIDE_COLUMN} text-right` },
      ]}
    >
      {preflights.map((each) => (
        <tr key={each.id} className={ROW}>
          <td className="w-full max-w-0 md:w-1/2">
            <Link
              to={`/preflight/${each.id}`}
              className="font-medium break-words hover:text-accent-ink hover:underline"
            >
              {formatEnvironments(each, (first, count) => t("preflight.environmentsOf", { first, count }))}
            </Link>
            <div className="truncate font-mono text-xs text-muted">{each.id}</div>
            {each.verdict && <div className="mt-0.5 line-clamp-2 text-xs text-muted">{each.verdict.message}</div>}
          </td>
          <td>
            {each.verdict ? <SeverityBadge level={each.verdict.level} /> : <PreflightStatus status={each.status} />}
          </td>
          <td className={MEDIUM_COLUMN}>{t(`preflight.levelOf.${each.level}`)}</td>
          <td className={`${MEDIUM_COLUMN} whitespace-nowrap`} title={formatDateTime(each.createdAt)}>
            {formatAge(each.createdAt, now)}
          </td>
          <td className={`${WIDE_COLUMN} text-right whitespace-nowrap tabular-nums`}>
            {formatDuration(t, getSecondsBetween(each.createdAt, each.endedAt ?? now))}
          </td>
        </tr>
      ))}
    </Table>
  );
}

const NAMED = 3;

function formatEnvironments({ environments }: PreflightBrief, others: (first: string, count: number) => string) {
  const names = environments.map(({ name }) => name);
  return names.length > NAMED ? others(names.slice(0, NAMED).join(", "), names.length) : names.join(", ");
}

import { useQuery } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link, useSearchParams } from "react-router";
import { PREFLIGHTS_PER_PAGE, preflightsQuery } from "@/api/preflights";
import type { PreflightBrief } from "@/api/types";
import { pageOf, withFilter } from "@/lib/filters";
import { ago, dateTime, duration, secondsBetween } from "@/lib/format";
import { useNow } from "@/lib/hooks";
import { ButtonLink } from "@/ui/button";
import { Empty } from "@/ui/empty";
import { Failure, Loading } from "@/ui/failure";
import { LevelBadge } from "@/ui/level";
import { Page } from "@/ui/page";
import { Pager } from "@/ui/pager";
import { PreflightStatus } from "@/ui/preflight-status";
import { MEDIUM, ROW, Table, WIDE } from "@/ui/table";

export function Component() {
  const { t } = useTranslation();
  const [params, setParams] = useSearchParams();
  const page = pageOf(params);
  const found = useQuery(preflightsQuery(page));
  return (
    <Page title={t("preflight.title")} actions={<NewPreflight />}>
      <p className="mb-4 text-sm text-muted">{t("preflight.lead")}</p>
      {found.isError && <Failure error={found.error} retry={() => void found.refetch()} />}
      {found.isPending && <Loading />}
      {found.data?.total === 0 && (
        <section className="rounded-xl border bg-surface shadow-xs">
          <Empty title={t("preflight.empty")} hint={t("preflight.emptyHint")}>
            <NewPreflight />
          </Empty>
        </section>
      )}
      {found.data && found.data.total > 0 && (
        <>
          <PreflightTable preflights={found.data.items} />
          <Pager
            count={t("preflight.count", { count: found.data.total })}
            pages={Math.ceil(found.data.total / PREFLIGHTS_PER_PAGE)}
            page={page}
            onPage={(next) => setParams((now) => withFilter(now, "page", String(next)), { replace: true })}
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
        { label: t("preflight.level"), className: MEDIUM },
        { label: t("preflight.created"), className: MEDIUM },
        { label: t("preflight.duration"), className: `${WIDE} text-right` },
      ]}
    >
      {preflights.map((each) => (
        <tr key={each.id} className={ROW}>
          <td className="w-full max-w-0 md:w-1/2">
            <Link
              to={`/preflight/${each.id}`}
              className="font-medium break-words hover:text-accent-ink hover:underline"
            >
              {environmentsText(each, (first, count) => t("preflight.environmentsOf", { first, count }))}
            </Link>
            <div className="truncate font-mono text-xs text-muted">{each.id}</div>
            {each.verdict && <div className="mt-0.5 line-clamp-2 text-xs text-muted">{each.verdict.message}</div>}
          </td>
          <td>{each.verdict ? <LevelBadge level={each.verdict.level} /> : <PreflightStatus status={each.status} />}</td>
          <td className={MEDIUM}>{t(`preflight.levelOf.${each.level}`)}</td>
          <td className={`${MEDIUM} whitespace-nowrap`} title={dateTime(each.createdAt)}>
            {ago(each.createdAt, now)}
          </td>
          <td className={`${WIDE} text-right whitespace-nowrap tabular-nums`}>
            {duration(t, secondsBetween(each.createdAt, each.endedAt ?? now))}
          </td>
        </tr>
      ))}
    </Table>
  );
}

const NAMED = 3;

function environmentsText({ environments }: PreflightBrief, others: (first: string, count: number) => string) {
  const names = environments.map(({ name }) => name);
  return names.length > NAMED ? others(names.slice(0, NAMED).join(", "), names.length) : names.join(", ");
}

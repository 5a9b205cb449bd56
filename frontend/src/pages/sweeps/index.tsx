import { useQuery } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link, useSearchParams } from "react-router";
import { SWEEPS_PER_PAGE, sweepsQuery } from "@/api/sweeps";
import type { SweepItem } from "@/api/types";
import { formatAge, formatDateTime, formatNumber } from "@/lib/format";
import { useNow } from "@/lib/hooks";
import { readPageNumber, setFilter } from "@/lib/url-filters";
import { ButtonLink } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { Page } from "@/ui/page";
import { Pager } from "@/ui/pager";
import { MEDIUM_COLUMN, ROW, Table, WIDE_COLUMN } from "@/ui/table";
import { SweepStatus } from "./status";

export function Component() {
  const { t } = useTranslation();
  const [params, setParams] = useSearchParams();
  const page = readPageNumber(params);
  const found = useQuery(sweepsQuery(page));
  return (
    <Page
      title={t("app.sweeps")}
      actions={
        <ButtonLink look="primary" to="/sweeps/new">
          <Plus />
          {t("sweep.create")}
        </ButtonLink>
      }
    >
      <p className="mb-4 text-sm text-muted">{t("sweep.lead")}</p>
      {found.isError && <LoadError error={found.error} retry={() => void found.refetch()} />}
      {found.isPending && <Loading />}
      {found.data?.total === 0 && (
        <section className="rounded-xl border bg-surface shadow-xs">
          <EmptyState title={t("sweep.empty")} hint={t("sweep.emptyHint")}>
            <ButtonLink look="primary" to="/sweeps/new">
              {t("sweep.create")}
            </ButtonLink>
          </EmptyState>
        </section>
      )}
      {found.data && found.data.total > 0 && (
        <>
          <SweepTable sweeps={found.data.items} />
          <Pager
            count={t("sweep.count", { count: found.data.total })}
            pages={Math.ceil(found.data.total / SWEEPS_PER_PAGE)}
            page={page}
            onPage={(next) => setParams((now) => setFilter(now, "page", String(next)), { replace: true })}
          />
        </>
      )}
    </Page>
  );
}

function SweepTable({ sweeps }: { sweeps: SweepItem[] }) {
  const { t } = useTranslation();
  const now = useNow();
  return (
    <Table
      label={t("app.sweeps")}
      columns={[
        { label: t("sweep.name") },
        { label: t("sweep.state") },
        { label: t("sweep.objective"), className: MEDIUM_COLUMN },
        { label: t("sweep.best"), className: MEDIUM_COLUMN },
        { label: t("sweep.trials"), className: WIDE_COLUMN },
        { label: t("sweep.created"), className: WIDE_COLUMN },
      ]}
    >
      {sweeps.map((each) => (
        <tr key={each.id} className={ROW}>
          <td className="w-full max-w-0 md:w-1/3">
            <Link to={`/sweeps/${each.id}`} className="font-medium break-words hover:text-accent-ink hover:underline">
              {each.name}
            </Link>
            <div className="truncate font-mono text-xs text-muted">{each.id}</div>
            {each.reason && <div className="mt-0.5 line-clamp-2 text-xs text-muted">{each.reason.message}</div>}
          </td>
          <td>
            <SweepStatus status={each.status} />
          </td>
          <td className={MEDIUM_COLUMN}>
            {each.metric}
            <div className="text-xs text-muted">
              {t(`sweep.methodOf.${each.method}`)} · {t(`sweep.goal.${each.goal}`)}
            </div>
          </td>
          <td className={`${MEDIUM_COLUMN} tabular-nums`}>
            {each.bestValue === null ? "–" : formatNumber(each.bestValue)}
          </td>
          <td className={WIDE_COLUMN}>
            {t("sweep.progress", { complete: each.trials.complete, total: each.trials.total })}
          </td>
          <td className={`${WIDE_COLUMN} whitespace-nowrap`} title={formatDateTime(each.createdAt)}>
            {formatAge(each.createdAt, now)}
          </td>
        </tr>
      ))}
    </Table>
  );
}

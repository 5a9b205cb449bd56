import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Download } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { AUDIT_FILTERS, auditEventsQuery, buildAuditExportUrl } from "@/api/audit";
import { canReadEvents, meQuery } from "@/api/session";
import { useFilters } from "@/lib/use-filters";
import { Button, ButtonAnchor } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { Page } from "@/ui/page";
import { MEDIUM_COLUMN, Table, WIDE_COLUMN } from "@/ui/table";
import { EventRow } from "./event-row";
import { Filters } from "./filters";

/** Who did what: for administrators everywhere, for maintainers in their projects. */
export function Component() {
  const { t } = useTranslation();
  const { filters, set, of, clear } = useFilters(AUDIT_FILTERS);
  const me = useQuery(meQuery).data;
  const events = useInfiniteQuery(auditEventsQuery(filters));
  const [now] = useState(() => Date.now());
  const found = events.data?.pages.flatMap(({ items }) => items);
  const mayRead = canReadEvents(me);
  const projects = me?.projects.filter(({ id }) => canReadEvents(me, id)) ?? [];
  return (
    <Page
      title={t("app.audit")}
      actions={
        mayRead && (
          <ButtonAnchor href={buildAuditExportUrl(filters, now)} download title={t("audit.exportHint")}>
            <Download />
            {t("audit.export")}
          </ButtonAnchor>
        )
      }
    >
      <p className="mb-3 max-w-3xl text-sm text-muted">
        {t(me?.isAdministrator ? "audit.leadAll" : "audit.leadProjects")}
      </p>
      <Filters projects={projects} filters={filters} set={set} of={of} onClear={clear} />
      {events.isError && <LoadError error={events.error} retry={() => void events.refetch()} />}
      {events.isPending && <Loading />}
      {found?.length === 0 && (
        <EmptyState title={t("audit.none")} hint={mayRead ? undefined : t("audit.maintainersOnly")} />
      )}
      {found && found.length > 0 && (
        <>
          <Table
            label={t("app.audit")}
            columns={[
              { label: t("audit.at") },
              { label: t("audit.actor"), className: MEDIUM_COLUMN },
              { label: t("audit.action") },
              { label: t("audit.target"), className: MEDIUM_COLUMN },
              { label: t("audit.project"), className: WIDE_COLUMN },
              { label: <span className="sr-only">{t("audit.details")}</span> },
            ]}
          >
            {found.map((event) => (
              <EventRow key={event.id} event={event} projects={me?.projects ?? []} />
            ))}
          </Table>
          {events.hasNextPage ? (
            <div className="mt-3 flex justify-center">
              <Button disabled={events.isFetchingNextPage} onClick={() => void events.fetchNextPage()}>
                {t("audit.older")}
              </Button>
            </div>
          ) : (
            <p className="mt-3 text-center text-sm text-muted">{t("audit.last", { count: found.length })}</p>
          )}
        </>
      )}
    </Page>
  );
}

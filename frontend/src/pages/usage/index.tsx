import { useQuery } from "@tanstack/react-query";
import { Download } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { meQuery } from "@/api/session";
import type { Usage } from "@/api/types";
import { USAGE_GROUPINGS, type UsageGrouping, buildUsageCsvUrl, usageQuery } from "@/api/usage";
import { useFilters } from "@/lib/use-filters";
import { formatDateInput, parseDateInput, startOfDay, addDays, addMonths } from "@/lib/dates";
import { formatGpuTime, formatInteger, formatMoney } from "@/lib/format";
import { ButtonAnchor } from "@/ui/button";
import { Card } from "@/ui/card";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { FilterSelect } from "@/ui/filters";
import { Page } from "@/ui/page";
import { Pager } from "@/ui/pager";
import { MEDIUM_COLUMN, ROW, Table } from "@/ui/table";
import { TimeBreakdownBar, TimeBreakdownLegend } from "./time-breakdown";
import { UsageSections } from "./usage-sections";

const FILTERS = ["by", "project", "from", "to"] as const;
const PER_PAGE = 50;
const PAGES: Partial<Record<UsageGrouping, string>> = { task: "/training", environment: "/environments" };

export function Component() {
  const { t } = useTranslation();
  const { filters: texts, page, set, of } = useFilters(FILTERS);
  const today = startOfDay(new Date());
  const by = USAGE_GROUPINGS.find((each) => each === texts.by) ?? "project";
  const first = texts.from ? parseDateInput(texts.from, today) : addMonths(today, 0);
  const last = parseDateInput(texts.to, today);
  const filters = {
    by,
    from: first.toISOString(),
    to: addDays(last, 1).toISOString(),
    ...(texts.project && { project: texts.project }),
  };
  const usage = useQuery(usageQuery(filters));
  const projects = useQuery(meQuery).data?.projects ?? [];
  return (
    <Page
      title={t("usage.title")}
      actions={
        <ButtonAnchor href={buildUsageCsvUrl(filters)} download>
          <Download />
          {t("usage.csv")}
        </ButtonAnchor>
      }
    >
      <UsageSections />
      <div className="mb-4 flex flex-wrap items-center gap-2">
        <select
          aria-label={t("usage.by")}
          className="control w-auto"
          value={by}
          onChange={({ target }) => set("by", target.value)}
        >
          {USAGE_GROUPINGS.map((each) => (
            <option key={each} value={each}>
              {t(`usage.byOf.${each}`)}
            </option>
          ))}
        </select>
        <FilterSelect
          label={t("queue.project")}
          any={t("queue.allProjects")}
          options={projects.map(({ id, name }) => [id, name])}
          {...of("project")}
        />
        <Day label={t("timeline.from")} day={first} onChange={of("from").onChange} />
        <Day label={t("timeline.to")} day={last} onChange={of("to").onChange} />
      </div>
      {usage.isError && <LoadError error={usage.error} retry={() => void usage.refetch()} />}
      {usage.isPending && <Loading />}
      {usage.data && <Report usage={usage.data} by={by} page={page} onPage={(n) => set("page", n)} />}
    </Page>
  );
}

interface DayProps {
  label: string;
  day: Date;
  onChange: (value: string) => void;
}

function Day({ label, day, onChange }: DayProps) {
  return (
    <label className="flex items-center gap-1.5 text-sm text-muted">
      {label}
      <input
        type="date"
        className="control w-auto"
        value={formatDateInput(day)}
        onChange={({ target }) => onChange(target.value)}
      />
    </label>
  );
}

interface ReportProps {
  usage: Usage;
  by: UsageGrouping;
  page: number;
  onPage: (page: string) => void;
}

function Report({ usage, by, page, onPage }: ReportProps) {
  const { t } = useTranslation();
  const { items, total, currency } = usage;
  const cost = (value: number | null) => (value === null ? "–" : formatMoney(value, currency));
  if (items.length === 0) {
    return (
      <section className="rounded-xl border bg-surface shadow-xs">
        <EmptyState title={t("usage.empty")} hint={t("usage.emptyHint")} />
      </section>
    );
  }
  const most = items[0]?.gpuHours ?? 0;
  const pages = Math.ceil(items.length / PER_PAGE);
  const at = Math.min(page, pages);
  const folder = PAGES[by];
  return (
    <div className="space-y-4">
      <Card>
        <dl className="grid grid-cols-2 gap-4 sm:grid-cols-3 lg:grid-cols-5">
          <Figure name={t("usage.gpuHours")} value={formatGpuTime(t, total.gpuHours)} />
          <Figure name={t("usage.cost")} value={cost(total.cost)} hint={total.cost === null && t("usage.noPrice")} />
          <Figure name={t("usage.goodput")} value={formatPercent(total.goodput)} hint={t("usage.goodputHint")} />
          <Figure name={t("usage.ettr")} value={formatPercent(total.ettr)} hint={t("overview.ettr")} />
          <Figure
            name={t("usage.partOf.open")}
            value={formatGpuTime(t, total.openGpuHours)}
            hint={t("usage.partHint.open")}
          />
        </dl>
        <div className="mt-4 space-y-2">
          <TimeBreakdownBar name={t("usage.total")} sum={total} most={total.gpuHours} />
          <TimeBreakdownLegend />
        </div>
      </Card>
      <Table
        label={t("usage.title")}
        columns={[
          { label: t(`usage.byOf.${by}`) },
          { label: t("usage.tasks"), className: `${MEDIUM_COLUMN} text-right` },
          { label: t("usage.gpuHours"), className: "text-right" },
          { label: t("usage.parts"), className: `${MEDIUM_COLUMN} w-2/5` },
          { label: t("usage.cost"), className: "text-right" },
          { label: t("usage.goodput"), className: "text-right" },
          { label: t("usage.ettr"), className: `${MEDIUM_COLUMN} text-right` },
        ]}
      >
        {items.slice((at - 1) * PER_PAGE, at * PER_PAGE).map((item) => {
          const name = item.name || item.key || "–";
          return (
            <tr key={item.key + item.name} className={ROW}>
              <th scope="row" className="font-medium break-words">
                {folder && item.key ? (
                  <Link to={`${folder}/${item.key}`} className="hover:text-accent-ink hover:underline">
                    {name}
                  </Link>
                ) : (
                  name
                )}
              </th>
              <td className={`${MEDIUM_COLUMN} text-right tabular-nums`}>{formatInteger(item.tasks)}</td>
              <td className="text-right whitespace-nowrap tabular-nums">{formatGpuTime(t, item.gpuHours)}</td>
              <td className={`${MEDIUM_COLUMN} align-middle`}>
                <TimeBreakdownBar name={name} sum={item} most={most} />
              </td>
              <td className="text-right whitespace-nowrap tabular-nums">{cost(item.cost)}</td>
              <td className="text-right tabular-nums">{formatPercent(item.goodput)}</td>
              <td className={`${MEDIUM_COLUMN} text-right tabular-nums`}>{formatPercent(item.ettr)}</td>
            </tr>
          );
        })}
      </Table>
      <Pager
        count={t("usage.count", { count: items.length })}
        pages={pages}
        page={at}
        onPage={(next) => onPage(String(next))}
      />
    </div>
  );
}

function formatPercent(share: number | null): string {
  return share === null ? "–" : `${Math.round(share * 100)}%`;
}

function Figure({ name, value, hint }: { name: string; value: string; hint?: string | false }) {
  return (
    <div>
      <dt className="text-sm text-muted">{name}</dt>
      <dd className="text-xl font-semibold tabular-nums">{value}</dd>
      {hint && <dd className="text-xs text-muted">{hint}</dd>}
    </div>
  );
}

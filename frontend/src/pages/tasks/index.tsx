import { useQuery } from "@tanstack/react-query";
import { Plus, Square, Table2, Trash2, X } from "lucide-react";
import { type ReactNode, useState } from "react";
import { useTranslation } from "react-i18next";
import { useLocation, useSearchParams } from "react-router";
import { frameworksQuery, zonesQuery } from "@/api/inventory";
import { meQuery } from "@/api/session";
import { TASKS_PER_PAGE, tasksQuery } from "@/api/tasks";
import type { TaskBrief, TaskOrdering } from "@/api/types";
import { cx } from "@/lib/cx";
import { setFilter } from "@/lib/url-filters";
import { formatInteger } from "@/lib/format";
import { useTableSettings, removeFilters } from "@/lib/use-table-settings";
import { BulkResults } from "@/ui/bulk-results";
import { Button, ButtonLink } from "@/ui/button";
import { ConfirmDialog } from "@/ui/confirm-dialog";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { TableSettings } from "@/ui/table-settings";
import { Page } from "@/ui/page";
import { Pager } from "@/ui/pager";
import { FilterSelect, SearchBox } from "@/ui/filters";
import { STATUSES } from "@/ui/status-badge";
import { type BulkActions, type BulkAction, useBulkActions } from "./use-bulk-actions";
import { ORDERS, taskColumns } from "./columns";
import { isFiltered, readFilters } from "./filters";
import { TaskTable } from "./table";

const NONE: TaskBrief[] = [];

export function Component() {
  const { t } = useTranslation();
  const [params, setParams] = useSearchParams();
  const filters = readFilters(params);
  const { ordering, onOrder, hidden, onHide } = useTableSettings(ORDERS);
  const tasks = useQuery(tasksQuery({ ...filters, ...(ordering && { ordering: ordering as TaskOrdering }) }));
  const total = tasks.data?.total ?? 0;
  const columns = taskColumns(t);
  const set = (name: string, value: string) => setParams((now) => setFilter(now, name, value), { replace: true });
  const setParameters = (conditions: string[]) =>
    setParams(
      (now) => {
        const next = setFilter(now, "parameter", "");
        for (const condition of conditions) next.append("parameter", condition);
        return next;
      },
      { replace: true },
    );
  const causeText = useCauseText();
  const clear = () => setParams(removeFilters);
  const bulk = useBulkActions(tasks.data?.items ?? NONE);
  return (
    <Page
      title={t("tasks.title")}
      actions={
        <>
          <ButtonLink to="/runs">
            <Table2 />
            {t("tasks.asRuns")}
          </ButtonLink>
          <ButtonLink look="primary" to="/training/create">
            <Plus />
            {t("tasks.create")}
          </ButtonLink>
        </>
      }
    >
      <div className="mb-4 flex flex-wrap items-center gap-2">
        <SearchBox label={t("tasks.search")} value={filters.search ?? ""} onSettled={(text) => set("search", text)} />
        <Filters params={params} onChange={set} />
        {filters.cause && <FilterChip text={causeText} label={t("tasks.anyCause")} onClear={() => set("cause", "")} />}
        <ParameterFilter conditions={filters.parameter ?? []} onChange={setParameters} />
        {isFiltered(filters) && (
          <Button look="ghost" size="sm" onClick={clear}>
            {t("tasks.clearFilters")}
          </Button>
        )}
        <div className="ml-auto flex flex-wrap items-center justify-end gap-2">
          <TableSettings section="training" columns={columns} hidden={hidden} onHide={onHide} />
          {bulk.ticks.ids.length > 0 && <BulkBar bulk={bulk} />}
        </div>
      </div>
      <BulkResults outcomes={bulk.outcomes} action={bulk.action} isPending={bulk.isPending} onClose={bulk.forget} />
      {tasks.isError && <LoadError error={tasks.error} retry={() => void tasks.refetch()} />}
      {tasks.isPending && <Loading />}
      {tasks.data && (
        <>
          {total > 0 ? (
            <TaskTable
              tasks={tasks.data.items}
              bulk={bulk}
              columns={columns.filter(({ id }) => !hidden.includes(id))}
              ordering={ordering}
              onOrder={onOrder}
            />
          ) : (
            <section className="rounded-xl border bg-surface shadow-xs">
              {isFiltered(filters) ? (
                <EmptyState title={t("tasks.nothingMatches")}>
                  <Button onClick={clear}>{t("tasks.clearFilters")}</Button>
                </EmptyState>
              ) : (
                <EmptyState title={t("tasks.empty")} hint={t("tasks.emptyHint")}>
                  <ButtonLink look="primary" to="/training/create">
                    {t("tasks.create")}
                  </ButtonLink>
                </EmptyState>
              )}
            </section>
          )}
        </>
      )}
      {total > 0 && (
        <Pager
          count={
            tasks.data?.totalIsExact === false
              ? t("tasks.countMore", { number: formatInteger(total) })
              : t("tasks.count", { count: total })
          }
          pages={Math.ceil(total / TASKS_PER_PAGE)}
          page={filters.page}
          onPage={(page) => set("page", String(page))}
        />
      )}
    </Page>
  );
}

/** The cause that the overview filtered by: named, or after a reload in general words. */
function useCauseText(): string {
  const { t } = useTranslation();
  const state: unknown = useLocation().state;
  const reported =
    typeof state === "object" && state && "cause" in state && typeof state.cause === "string" && state.cause;
  return reported || t("tasks.oneCause");
}

function FilterChip({ text, label, onClear }: { text: string; label: string; onClear: () => void }) {
  return (
    <span className="inline-flex max-w-sm min-w-0 items-center gap-1 rounded-full border bg-sunken py-0.5 pr-1 pl-2.5 text-sm">
      <span className="truncate" title={text}>
        {text}
      </span>
      <button
        type="button"
        aria-label={label}
        className="rounded-full p-0.5 text-muted -outline-offset-2 hover:text-ink"
        onClick={onClear}
      >
        <X className="size-3.5" />
      </button>
    </span>
  );
}

/** Conditions on parameters of scripts, such as `lr>0.001`; Enter adds one. */
function ParameterFilter({ conditions, onChange }: { conditions: string[]; onChange: (all: string[]) => void }) {
  const { t } = useTranslation();
  const [text, setText] = useState("");
  return (
    <>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const condition = text.trim();
          if (condition && !conditions.includes(condition)) onChange([...conditions, condition]);
          setText("");
        }}
      >
        <input
          aria-label={t("tasks.parameter")}
          placeholder={t("tasks.parameterExample")}
          title={t("tasks.parameter")}
          className="control w-40"
          spellCheck={false}
          maxLength={1300}
          value={text}
          onChange={({ target }) => setText(target.value)}
        />
      </form>
      {conditions.map((condition) => (
        <FilterChip
          key={condition}
          text={condition}
          label={t("tasks.withoutParameter", { condition })}
          onClear={() => onChange(conditions.filter((each) => each !== condition))}
        />
      ))}
    </>
  );
}

interface FiltersProps {
  params: URLSearchParams;
  onChange: (name: string, value: string) => void;
}

function Filters({ params, onChange }: FiltersProps) {
  const { t } = useTranslation();
  const frameworks = useQuery(frameworksQuery).data ?? [];
  const zones = useQuery(zonesQuery).data ?? [];
  const me = useQuery(meQuery).data?.username;
  const of = (name: string) => ({
    value: params.get(name) ?? "",
    onChange: (value: string) => onChange(name, value),
  });
  return (
    <>
      <FilterSelect
        label={t("tasks.status")}
        any={t("tasks.allStatuses")}
        options={STATUSES.map((status) => [status, t(`status.${status}`)])}
        {...of("status")}
      />
      <FilterSelect
        label={t("tasks.framework")}
        any={t("tasks.allFrameworks")}
        options={frameworks.map(({ value, label }) => [value, label])}
        {...of("framework")}
      />
      <FilterSelect
        label={t("tasks.zone")}
        any={t("tasks.allZones")}
        options={zones.map(({ id, name }) => [id, name])}
        {...of("zone")}
      />
      {me && (
        <label className="flex items-center gap-1.5 px-1 text-sm">
          <input
            type="checkbox"
            checked={params.get("owner") === me}
            onChange={({ target }) => onChange("owner", target.checked ? me : "")}
          />
          {t("tasks.mine")}
        </label>
      )}
    </>
  );
}

function BulkBar({ bulk }: { bulk: BulkActions }) {
  const { t } = useTranslation();
  const count = bulk.ticks.selected.length;
  const button = (action: BulkAction, icon: ReactNode) => {
    const among = bulk.selected(action).length;
    return (
      <ConfirmDialog
        danger
        title={t(`tasks.${action}Title`, { count: among })}
        description={t(`task.${action}Hint`)}
        action={t(`task.${action}`)}
        onConfirm={() => bulk.run(action)}
        trigger={
          <Button disabled={among === 0 || bulk.isPending}>
            {icon}
            {t(`tasks.${action}Selected`)}
          </Button>
        }
      />
    );
  };
  return (
    <div className={cx("items-center gap-2", count > 0 ? "flex" : "hidden md:flex")}>
      <span role="status" className="text-sm text-muted">
        {count > 0 && t("tasks.selected", { count })}
      </span>
      {button("stop", <Square />)}
      {button("delete", <Trash2 />)}
    </div>
  );
}

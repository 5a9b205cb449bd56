import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Archive, Download, ListTree, Plus, Rows2, Rows4 } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Navigate } from "react-router";
import { buildExportUrl, chosenRunsQuery, runColumnsQuery, runGroupsQuery, runsQuery, runViewsQuery } from "@/api/runs";
import type { Run, RunColumn, RunPage } from "@/api/types";
import { canCreate, meQuery } from "@/api/session";
import { formatInteger } from "@/lib/format";
import { useSelection } from "@/lib/use-selection";
import { useCompactRows } from "@/lib/use-table-settings";
import { BulkResults } from "@/ui/bulk-results";
import { Button, ButtonLink } from "@/ui/button";
import { EmptyState } from "@/ui/empty-state";
import { LoadError, Loading } from "@/ui/errors";
import { Menu, MenuDownload } from "@/ui/menu";
import { Page } from "@/ui/page";
import { BulkBar } from "./bulk-bar";
import { ColumnChooser } from "./column-chooser";
import { describeColumns, normalizeColumn } from "./columns";
import { GroupChooser } from "./group-chooser";
import { NoteDialog } from "./note-dialog";
import { QueryField } from "./query-field";
import { QueryHelp } from "./query-help";
import { narrowQuery, readQueryProblem } from "./query-text";
import { RunTable } from "./table";
import { buildSearch, MAX_PINNED, moveTo, readView, type TableState, writeTableState } from "./table-state";
import { useLines } from "./use-lines";
import { useRunBulk } from "./use-run-bulk";
import { useTableState } from "./use-table-state";
import { useDefaultView, ViewBar } from "./view-bar";

const NO_COLUMNS: RunColumn[] = [];

/** The table of runs. Where the address says nothing else, it opens in the default view. */
export function Component() {
  const { t } = useTranslation();
  const { isPlain } = useTableState();
  const [defaultView] = useDefaultView();
  const isWanted = isPlain && defaultView !== null;
  const views = useQuery({ ...runViewsQuery, enabled: isWanted });
  const view = views.data?.find(({ id }) => id === defaultView);
  if (isWanted && view) return <Navigate replace to={`?${writeTableState(readView(view), view.id).toString()}`} />;
  if (isWanted && views.isPending)
    return (
      <Page title={t("runs.title")}>
        <Loading />
      </Page>
    );
  return <Runs />;
}

function Runs() {
  const { t } = useTranslation();
  const { state, view, change, open } = useTableState();
  const me = useQuery(meQuery).data;
  const [noteOf, setNoteOf] = useState<Run>();
  const search = buildSearch({ ...state, columns: state.columns.map(normalizeColumn) });
  const groupBy = state.groupBy.map(normalizeColumn);
  const isGrouped = groupBy.length > 0;
  const found = useInfiniteQuery({ ...runsQuery(search), enabled: !isGrouped });
  const groups = useQuery(runGroupsQuery(search, groupBy));
  const active = isGrouped ? groups : found;
  const known = useQuery(runColumnsQuery("")).data ?? NO_COLUMNS;
  const problem = readQueryProblem(active.error, state.query);

  /** After a query that is wrong, the runs of the one before stay. */
  const [last, setLast] = useState<RunPage[]>([]);
  const pages = found.data?.pages;
  if (pages && pages !== last) setLast(pages);
  const runs = isGrouped ? [] : (pages ?? last).flatMap(({ items }) => items);

  const chosen = [...new Set([...(state.baseline ? [state.baseline] : []), ...state.pinned])];
  const fixed = useQuery(chosenRunsQuery(chosen, search.column ?? [])).data ?? [];
  const shownFirst = chosen.flatMap((id) => fixed.find(({ task }) => task.taskId === id) ?? []);
  const isFixed = (run: Run) => chosen.includes(run.task.taskId);

  const table = useLines(
    search,
    groupBy,
    runs.filter((run) => !isFixed(run)),
    isGrouped ? groups.data?.items : undefined,
  );
  const all = new Map(
    [...shownFirst, ...table.lines.flatMap((line) => (line.kind === "run" ? line.run : []))].map((run) => [
      run.task.taskId,
      run,
    ]),
  );
  const columns = describeColumns(t, search.column ?? [], known, [...all.values()]);
  const selection = useSelection([...all.keys()]);
  const bulk = useRunBulk(selection.clear);
  const mayChange = (run: Run) => canCreate(me, run.task.projectId);
  const groupable = describeColumns(
    t,
    [...new Set([...known.map(({ name }) => name), ...(search.column ?? []), ...groupBy])],
    known,
    [],
  );
  const pin = ({ task: { taskId } }: Run) =>
    change({
      pinned: state.pinned.includes(taskId)
        ? state.pinned.filter((id) => id !== taskId)
        : [...state.pinned, taskId].slice(-MAX_PINNED),
    });
  const page = pages?.at(-1);
  const goOn = () => {
    if (!isGrouped && found.hasNextPage && !found.isFetching && page?.items.length) void found.fetchNextPage();
  };

  return (
    <Page
      title={t("runs.title")}
      actions={
        <>
          <ButtonLink to="/training">
            <ListTree />
            {t("tasks.title")}
          </ButtonLink>
          <ButtonLink look="primary" to="/training/create">
            <Plus />
            {t("tasks.create")}
          </ButtonLink>
        </>
      }
    >
      <ViewBar state={state} view={view} onOpen={open} />
      <div className="mb-3 flex flex-wrap items-start gap-x-2 gap-y-1">
        <div className="relative flex min-w-full flex-1 items-start gap-1 lg:min-w-0">
          <QueryField
            value={state.query}
            problem={problem}
            isSearching={active.isFetching}
            onSearch={(query) => change({ query })}
          />
          <QueryHelp onChoose={(example) => change({ query: `${state.query} ${example}`.trim() })} />
        </div>
        <Toolbar state={state} change={change} columns={columns} groupable={groupable} />
      </div>
      <BulkResults outcomes={bulk.outcomes} action={bulk.deed} isPending={bulk.isPending} onClose={bulk.forget} />
      {active.isError && !problem && <LoadError error={active.error} retry={() => void active.refetch()} />}
      {problem && table.lines.length > 0 && <p className="mb-2 text-sm text-muted">{t("runs.previous")}</p>}
      {active.isLoading && table.lines.length === 0 && <Loading />}
      {table.lines.length + shownFirst.length > 0 ? (
        <RunTable
          columns={columns}
          lines={table.lines}
          fixed={shownFirst}
          baseline={shownFirst.find(({ task }) => task.taskId === state.baseline)}
          pinned={state.pinned}
          sort={state.sort}
          groupBy={describeColumns(t, groupBy, known, [])}
          selection={selection}
          isOld={active.isPlaceholderData}
          mayChange={mayChange}
          onSort={(sort) => change({ sort })}
          onMoveColumn={(name, target) => change({ columns: moveTo(search.column ?? [], name, target) })}
          onToggleGroup={table.toggle}
          onShowGroup={({ key }) => change({ query: narrowQuery(state.query, groupBy, key), groupBy: [] })}
          onPin={pin}
          onBaseline={(run) => change({ baseline: run?.task.taskId ?? null })}
          onNote={setNoteOf}
          onEnd={goOn}
        />
      ) : (
        active.isSuccess && (
          <section className="rounded-xl border bg-surface shadow-xs">
            <Nothing
              isFiltered={state.query !== ""}
              unknown={page?.unknownNames ?? []}
              onClear={() => change({ query: "" })}
            />
          </section>
        )
      )}
      {!isGrouped && page && (
        <Progress
          page={page}
          shown={runs.length}
          isLoading={found.isFetchingNextPage}
          onMore={found.hasNextPage ? () => void found.fetchNextPage() : undefined}
        />
      )}
      {isGrouped && groups.data && (
        <p role="status" className="mt-3 text-sm text-muted">
          {t("runs.groupCount", { count: groups.data.groups })}
          {groups.data.items.length < groups.data.groups &&
            ` ${t("runs.groupsShown", { count: groups.data.items.length })}`}
          {!groups.data.complete && ` ${t("runs.groupsCut", { tasks: formatInteger(groups.data.tasks) })}`}
        </p>
      )}
      {selection.selected.length > 0 && (
        <BulkBar
          runs={selection.selected.flatMap((id) => all.get(id) ?? [])}
          bulk={bulk}
          mayChange={mayChange}
          onClear={selection.clear}
        />
      )}
      <NoteDialog
        run={noteOf}
        mayChange={noteOf !== undefined && mayChange(noteOf)}
        onClose={() => setNoteOf(undefined)}
      />
    </Page>
  );
}

interface ToolbarProps {
  state: TableState;
  change: ReturnType<typeof useTableState>["change"];
  columns: ReturnType<typeof describeColumns>;
  groupable: ReturnType<typeof describeColumns>;
}

/** What the table shows of the runs, and the table as a file. */
function Toolbar({ state, change, columns, groupable }: ToolbarProps) {
  const { t } = useTranslation();
  const [dense, setDense] = useCompactRows();
  const search = buildSearch({ ...state, columns: columns.map(({ name }) => name) });
  return (
    <div className="relative ml-auto flex flex-wrap items-center justify-end gap-1">
      <ColumnChooser columns={columns} onChange={(names) => change({ columns: names })} />
      <GroupChooser columns={groupable} groupBy={state.groupBy} onChange={(groupBy) => change({ groupBy })} />
      <Button
        look="ghost"
        aria-pressed={state.archived}
        className={state.archived ? "bg-sunken text-ink!" : undefined}
        onClick={() => change({ archived: !state.archived })}
      >
        <Archive />
        {t("runs.withArchived")}
      </Button>
      <Menu
        label={t("runs.export")}
        trigger={
          <Button look="ghost">
            <Download />
            {t("runs.export")}
          </Button>
        }
      >
        <MenuDownload href={buildExportUrl(search, "csv")}>CSV</MenuDownload>
        <MenuDownload href={buildExportUrl(search, "parquet")}>Parquet</MenuDownload>
      </Menu>
      <Button
        look="ghost"
        size="icon"
        aria-label={t("list.dense")}
        title={t("list.dense")}
        aria-pressed={dense}
        onClick={() => setDense(!dense)}
      >
        {dense ? <Rows2 /> : <Rows4 />}
      </Button>
    </div>
  );
}

interface NothingProps {
  isFiltered: boolean;
  /** Names in the query that no run has. */
  unknown: string[];
  onClear: () => void;
}

function Nothing({ isFiltered, unknown, onClear }: NothingProps) {
  const { t } = useTranslation();
  if (isFiltered)
    return (
      <EmptyState
        title={t("runs.nothingMatches")}
        hint={unknown.length > 0 ? t("runs.unknownNames", { names: unknown.join(", ") }) : t("runs.nothingMatchesHint")}
      >
        <Button onClick={onClear}>{t("runs.clearQuery")}</Button>
      </EmptyState>
    );
  return (
    <EmptyState title={t("runs.empty")} hint={t("runs.emptyHint")}>
      <ButtonLink look="primary" to="/training/create">
        {t("tasks.create")}
      </ButtonLink>
    </EmptyState>
  );
}

interface ProgressProps {
  page: RunPage;
  /** The runs that are loaded. */
  shown: number;
  isLoading: boolean;
  /** Undefined: there are no more. */
  onMore: (() => void) | undefined;
}

/** How many runs there are, and how far the platform searched. */
function Progress({ page: { total, totalIsExact, searched }, shown, isLoading, onMore }: ProgressProps) {
  const { t } = useTranslation();
  const count =
    total === null
      ? t("runs.shown", { count: shown })
      : totalIsExact !== false
        ? t("runs.count", { count: total })
        : t("runs.countMore", { number: formatInteger(total) });
  return (
    <div className="mt-3 flex flex-wrap items-center gap-x-3 gap-y-1 text-sm text-muted">
      <span role="status">
        {count}
        {!searched.complete && ` ${t("runs.searchedOnly", { tasks: formatInteger(searched.tasks) })}`}
      </span>
      {onMore && (
        <Button size="sm" disabled={isLoading} onClick={onMore}>
          {t(isLoading ? "app.loading" : searched.complete ? "runs.more" : "runs.searchOn")}
        </Button>
      )}
    </div>
  );
}

import type { RunSearch, RunViewRequest } from "@/api/types";

/** What a table of runs shows; the address holds it, and a saved view. */
export interface TableState {
  query: string;
  columns: string[];
  /** A column, descending behind a `-`; empty: the newest first. */
  sort: string;
  groupBy: string[];
  pinned: string[];
  baseline: string | null;
  archived: boolean;
}

export const DEFAULT_COLUMNS = ["status", "owner", "created", "duration", "step", "loss", "gpuHours", "tag", "note"];

export const MAX_COLUMNS = 40;
export const MAX_GROUPS = 3;
export const MAX_PINNED = 20;

const STATE_PARAMS = ["query", "column", "sort", "by", "pin", "baseline", "archived", "view"];

const readList = (params: URLSearchParams, name: string, most: number) =>
  [...new Set(params.getAll(name).filter(Boolean))].slice(0, most);

/** Returns what an address shows. What the platform would refuse by its number is cut off. */
export function readTableState(params: URLSearchParams): TableState {
  const columns = readList(params, "column", MAX_COLUMNS);
  return {
    query: params.get("query") ?? "",
    columns: columns.length > 0 ? columns : DEFAULT_COLUMNS,
    sort: params.get("sort") ?? "",
    groupBy: readList(params, "by", MAX_GROUPS),
    pinned: readList(params, "pin", MAX_PINNED),
    baseline: params.get("baseline"),
    archived: params.get("archived") === "true",
  };
}

/** Returns the parameters of an address, without what is the same in every new table. */
export function writeTableState(state: TableState, view?: string | null): URLSearchParams {
  const params = new URLSearchParams();
  if (view) params.set("view", view);
  if (state.query) params.set("query", state.query);
  if (state.columns.join("\n") !== DEFAULT_COLUMNS.join("\n"))
    for (const column of state.columns) params.append("column", column);
  if (state.sort) params.set("sort", state.sort);
  for (const column of state.groupBy) params.append("by", column);
  for (const id of state.pinned) params.append("pin", id);
  if (state.baseline) params.set("baseline", state.baseline);
  if (state.archived) params.set("archived", "true");
  return params;
}

/** Returns whether an address says nothing of its own, so that the default view applies. */
export function isPlainAddress(params: URLSearchParams): boolean {
  return !STATE_PARAMS.some((name) => params.has(name));
}

/** Returns what a view shows. A view holds no archived runs: they are shown for once. */
export function readView(view: Omit<Required<RunViewRequest>, "name" | "projectId">): TableState {
  return {
    query: view.query,
    columns: view.columns.length > 0 ? view.columns : DEFAULT_COLUMNS,
    sort: view.sort,
    groupBy: view.groupBy,
    pinned: view.pinned,
    baseline: view.baseline,
    archived: false,
  };
}

/** Returns the fields of a view that shows the same. */
export function writeView(state: TableState): Omit<RunViewRequest, "name" | "projectId"> {
  const { query, columns, sort, groupBy, pinned, baseline } = state;
  return { query, columns, sort, groupBy, pinned, baseline };
}

export function isSameView(one: TableState, other: TableState): boolean {
  return JSON.stringify(writeView(one)) === JSON.stringify(writeView(other));
}

/** Returns the search of a table: its query and columns, without what the page adds itself. */
export function buildSearch({ query, columns, sort, archived }: TableState): RunSearch {
  return {
    ...(query && { query }),
    column: columns,
    ...(sort && { sort }),
    ...(archived && { archived: "all" as const }),
  };
}

/** Returns the list with an element before or behind another one. */
export function moveTo(list: string[], name: string, target: string): string[] {
  const from = list.indexOf(name);
  const to = list.indexOf(target);
  if (from < 0 || to < 0 || from === to) return list;
  const rest = list.filter((each) => each !== name);
  rest.splice(to, 0, name);
  return rest;
}

/** Returns the list with an element one place on, by `by` places. */
export function moveBy(list: string[], name: string, by: number): string[] {
  const target = list[list.indexOf(name) + by];
  return target === undefined || !list.includes(name) ? list : moveTo(list, name, target);
}

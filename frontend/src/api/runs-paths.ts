/**
 * The operations of the table of runs, as the client types them. `schema.d.ts` has them once the platform documents
 * them; then this module goes, and `runs.ts` uses the client as all others do.
 */
import type { TaskBrief } from "./types";

/** A value of a run in a column; null: it has none. Several values (`tag`, `zone`) are one text, with commas. */
export type RunValue = number | string | boolean | null;

export interface Run {
  task: TaskBrief;
  tags: string[];
  /** The first 200 characters, Markdown. */
  note: string;
  archivedAt: string | null;
  values: Record<string, RunValue>;
}

/** How far the platform searched; not complete: the cursor goes on behind the last task that was tested. */
export interface Searched {
  complete: boolean;
  tasks: number;
}

export interface RunPage {
  items: Run[];
  nextCursor: string | null;
  total: number | null;
  totalIsExact: boolean | null;
  searched: Searched;
}

/** `mixed`: a parameter, which is a number in one run and a text in another. */
export type ColumnKind = "number" | "text" | "time" | "duration" | "choice" | "mixed";
export type ColumnGroup = "task" | "parameter" | "metric" | "cost";

export interface RunColumn {
  name: string;
  kind: ColumnKind;
  label: string;
  choices: string[];
  group: ColumnGroup;
  sortable: boolean;
  /** Whether a higher value is better; null or absent: neither is. */
  higherIsBetter?: boolean | null;
}

export interface CompletionItem {
  text: string;
  kind: string;
  detail: string;
}

/** `from` and `to` count characters (code points), as the platform does. */
export interface Completion {
  from: number;
  to: number;
  items: CompletionItem[];
}

export interface Aggregate {
  mean: number | null;
  min: number | null;
  max: number | null;
  std: number | null;
  count: number;
}

export interface RunGroup {
  /** The values of the columns that the runs are grouped by, by name. */
  key: Record<string, RunValue>;
  count: number;
  values: Record<string, Aggregate>;
}

export interface RunGroups {
  /** The largest first. */
  items: RunGroup[];
  /** How many there are. */
  groups: number;
  /** How many runs were counted. */
  tasks: number;
  /** All runs that match were counted. */
  complete: boolean;
}

export interface RunRecord {
  taskId: string;
  tags: string[];
  note: string;
  archivedAt: string | null;
}

export interface RunChange {
  tags?: string[];
  note?: string;
  archived?: boolean;
}

export type RunBulkAction = "addTags" | "removeTags" | "archive" | "unarchive" | "stop" | "delete";

export interface RunBulkRequest {
  taskIds: string[];
  action: RunBulkAction;
  tags?: string[];
}

export interface RunBulkResult {
  taskId: string;
  done: boolean;
  refusal: { code: string; message: string; hint: string } | null;
}

export interface RunViewRequest {
  name: string;
  /** null: the user's own. */
  projectId: string | null;
  query: string;
  columns: string[];
  sort: string;
  groupBy: string[];
  pinned: string[];
  baseline: string | null;
}

export interface RunView extends RunViewRequest {
  id: string;
  mayChange: boolean;
}

export interface RunSearch {
  query?: string;
  column?: string[];
  sort?: string;
  archived?: "false" | "true" | "all";
}

interface Json<T> {
  content: { "application/json": T };
}
interface Envelope<T> {
  code: number;
  data?: T;
}
interface NoParameters {
  query?: never;
  path?: never;
  header?: never;
  cookie?: never;
}
interface Operation<Data, Parameters = NoParameters, Body = never, Status extends number = 200> {
  parameters: Parameters;
  requestBody?: [Body] extends [never] ? never : Json<Body>;
  responses: Record<Status, { headers: Record<string, unknown> } & Json<Envelope<Data>>>;
}
type Query<Q> = Omit<NoParameters, "query"> & { query?: Q };
type InPath<P> = Omit<NoParameters, "path"> & { path: P };

export interface RunPaths {
  "/api/v1/training-tasks/{task_id}": { get: Operation<{ note: string }, InPath<{ task_id: string }>> };
  "/api/v1/runs": { get: Operation<RunPage, Query<RunSearch & { pageSize?: number; cursor?: string }>> };
  "/api/v1/runs/columns": { get: Operation<{ items: RunColumn[] }, Query<{ search?: string }>> };
  "/api/v1/runs/complete": { get: Operation<Completion, Query<{ query: string; position: number }>> };
  "/api/v1/runs/groups": { get: Operation<RunGroups, Query<RunSearch & { by: string[] }>> };
  "/api/v1/runs/bulk": { post: Operation<{ items: RunBulkResult[] }, NoParameters, RunBulkRequest> };
  "/api/v1/runs/{task_id}": {
    patch: Operation<RunRecord, InPath<{ task_id: string }>, RunChange>;
  };
  "/api/v1/run-views": {
    get: Operation<{ items: RunView[] }, Query<{ pageSize?: number }>>;
    post: Operation<RunView, NoParameters, RunViewRequest, 201>;
  };
  "/api/v1/run-views/{view_id}": {
    patch: Operation<RunView, InPath<{ view_id: string }>, Partial<RunViewRequest>>;
    delete: Operation<null, InPath<{ view_id: string }>>;
  };
}

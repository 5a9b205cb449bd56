import { keepPreviousData, mutationOptions, type QueryClient, queryOptions } from "@tanstack/react-query";
import { fetchAllPages, http, unwrapResponse } from "./client";
import type { CodeChoice } from "./code";
import type { CreateRequest, Metric, Preview, Status, Task, TaskBrief, TaskEvent, TaskOrdering } from "./types";

export interface TaskFilters {
  status?: Status[];
  framework?: string;
  zone?: string;
  owner?: string;
  environment?: string;
  search?: string;
  /** Conditions such as `lr>0.001`. */
  parameter?: string[];
  /** A cause, as the overview names it. */
  cause?: string;
  ordering?: TaskOrdering;
  page: number;
}

export const TASKS_PER_PAGE = 20;

export const taskKeys = {
  all: ["tasks"] as const,
  list: (filters: TaskFilters) => [...taskKeys.all, "list", filters] as const,
  one: (id: string) => [...taskKeys.all, id] as const,
  detail: (id: string) => [...taskKeys.one(id), "detail"] as const,
  diagnosis: (id: string) => [...taskKeys.one(id), "diagnosis"] as const,
  events: (id: string) => [...taskKeys.one(id), "events"] as const,
  metrics: (id: string) => [...taskKeys.one(id), "metrics"] as const,
  pulses: (id: string) => [...taskKeys.one(id), "pulses"] as const,
  scaling: (id: string) => [...taskKeys.one(id), "scaling"] as const,
  checkpoints: (id: string) => [...taskKeys.one(id), "checkpoints"] as const,
  plan: (id: string, attempt: number) => [...taskKeys.one(id), "plan", attempt] as const,
  preview: (body: unknown) => ["task-preview", body] as const,
};

export function isFinished(task: Pick<TaskBrief, "endedAt">): boolean {
  return task.endedAt != null;
}

export const tasksQuery = (filters: TaskFilters) =>
  queryOptions({
    queryKey: taskKeys.list(filters),
    queryFn: () =>
      unwrapResponse(
        http.GET("/api/v1/training-tasks", { params: { query: { ...filters, pageSize: TASKS_PER_PAGE } } }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => (state.data?.items.every(isFinished) ? 15_000 : 2_000),
  });

const MAX_NAMED_TASKS = 100;

/** Names of tasks by id, without those that the user may not see. */
export const taskNamesQuery = (ids: string[]) =>
  queryOptions({
    queryKey: [...taskKeys.all, "names", ids] as const,
    queryFn: async () => {
      const query = { task: ids.slice(0, MAX_NAMED_TASKS), pageSize: MAX_NAMED_TASKS, count: false };
      const { items } = await unwrapResponse(http.GET("/api/v1/training-tasks", { params: { query } }));
      return new Map(items.map(({ taskId, taskName }) => [taskId, taskName]));
    },
    staleTime: 60_000,
  });

export const taskQuery = (id: string) =>
  queryOptions({
    queryKey: taskKeys.detail(id),
    queryFn: () => unwrapResponse(http.GET("/api/v1/training-tasks/{task_id}", { params: { path: { task_id: id } } })),
    // refreshed, as no event tells that a missing node is available again
    refetchInterval: ({ state: { data } }) => (data && !isFinished(data) && data.elastic?.away.length ? 10_000 : false),
  });

/** Refreshed when the stream tells of a change, and now and then for the progress of ranks. */
export const diagnosisQuery = (id: string, over: boolean) =>
  queryOptions({
    queryKey: taskKeys.diagnosis(id),
    queryFn: () =>
      unwrapResponse(http.GET("/api/v1/training-tasks/{task_id}/diagnosis", { params: { path: { task_id: id } } })),
    refetchInterval: over ? false : 5_000,
  });

/** The progress of each rank, refreshed while the task runs and the page is visible; less often for many ranks. */
export const rankProgressQuery = (task: Task) =>
  queryOptions({
    queryKey: taskKeys.pulses(task.taskId),
    queryFn: async () => {
      const params = { path: { task_id: task.taskId } };
      return (await unwrapResponse(http.GET("/api/v1/training-tasks/{task_id}/pulses", { params }))).ranks;
    },
    enabled: task.status === "running",
    refetchInterval: task.worldSize > 64 ? 5_000 : 2_000,
  });

/** Events and metrics are only ever added, so a refresh requests what came after the newest known one. */
export const eventsQuery = (id: string) =>
  queryOptions({
    queryKey: taskKeys.events(id),
    queryFn: async ({ client, queryKey }) => {
      const have = client.getQueryData<TaskEvent[]>(queryKey) ?? [];
      const query = { after: have.at(-1)?.id, pageSize: 100 };
      const more = await fetchAllPages((page) =>
        unwrapResponse(
          http.GET("/api/v1/training-tasks/{task_id}/events", {
            params: { path: { task_id: id }, query: { ...query, page } },
          }),
        ),
      );
      return mergeById(client.getQueryData<TaskEvent[]>(queryKey) ?? have, more);
    },
  });

/** A new `round` requests it again. */
export const scalingQuery = (id: string, round: number) =>
  queryOptions({
    queryKey: [...taskKeys.scaling(id), round],
    queryFn: () =>
      unwrapResponse(http.GET("/api/v1/training-tasks/{task_id}/scaling", { params: { path: { task_id: id } } })),
  });

export const metricsQuery = (id: string) =>
  queryOptions({
    queryKey: taskKeys.metrics(id),
    queryFn: async ({ client, queryKey }) => {
      const have = client.getQueryData<Metric[]>(queryKey) ?? [];
      const more: Metric[] = [];
      let after = have.at(-1)?.id;
      for (;;) {
        const query = { after, limit: 1000 };
        const page = await unwrapResponse(
          http.GET("/api/v1/training-tasks/{task_id}/metrics", { params: { path: { task_id: id }, query } }),
        );
        more.push(...page.items);
        after = page.items.at(-1)?.id;
        if (page.next == null || after === undefined) break;
      }
      return mergeById(client.getQueryData<Metric[]>(queryKey) ?? have, more);
    },
  });

export const checkpointsQuery = (id: string) =>
  queryOptions({
    queryKey: taskKeys.checkpoints(id),
    queryFn: async () =>
      (
        await unwrapResponse(
          http.GET("/api/v1/training-tasks/{task_id}/checkpoints", { params: { path: { task_id: id } } }),
        )
      ).items,
  });

/** A rendered plan never changes. */
export const planQuery = (id: string, attempt: number) =>
  queryOptions({
    queryKey: taskKeys.plan(id, attempt),
    queryFn: () =>
      unwrapResponse(
        http.GET("/api/v1/training-tasks/{task_id}/plan", {
          params: { path: { task_id: id }, query: { attempt } },
        }),
      ),
    staleTime: Infinity,
  });

/** Creates nothing, so the body is the key of the query. Aborted when another body is previewed. */
export const previewQuery = (body: CreateRequest) =>
  queryOptions({
    queryKey: taskKeys.preview(body),
    queryFn: ({ signal }): Promise<Preview> =>
      unwrapResponse(http.POST("/api/v1/training-tasks/preview", { body, signal })),
    placeholderData: keepPreviousData,
    gcTime: 60_000,
    refetchInterval: ({ state }) => (state.data?.packages?.looking || state.data?.memoryLooking ? 1_500 : false),
  });

/** Returns what a pasted launch command means. Runs nothing. */
export const readLaunchCommand = mutationOptions({
  mutationFn: (text: string) => unwrapResponse(http.POST("/api/v1/training-tasks/launch-command", { body: { text } })),
});

/** Creates a task. The same body with the same idempotency key creates it only once. */
export const createTask = mutationOptions({
  mutationFn: ({ body, key }: { body: CreateRequest; key: string }) =>
    unwrapResponse(http.POST("/api/v1/training-tasks", { body, headers: { "Idempotency-Key": key } })),
});

export const requestStop = (id: string) =>
  unwrapResponse(http.POST("/api/v1/training-tasks/{task_id}/stop", { params: { path: { task_id: id } } }));

export const requestResume = (id: string) =>
  unwrapResponse(http.POST("/api/v1/training-tasks/{task_id}/resume", { params: { path: { task_id: id } } }));

export const stopTaskMutation = (id: string) => mutationOptions({ mutationFn: () => requestStop(id) });

export const pauseTaskMutation = (id: string) =>
  mutationOptions({
    mutationFn: () =>
      unwrapResponse(http.POST("/api/v1/training-tasks/{task_id}/pause", { params: { path: { task_id: id } } })),
  });

export const resumeTaskMutation = (id: string) =>
  mutationOptions({
    mutationFn: () =>
      unwrapResponse(http.POST("/api/v1/training-tasks/{task_id}/resume", { params: { path: { task_id: id } } })),
  });

/** Continues from the newest checkpoint. The answer is the task that continues, which may be a new one. */
export const restartTaskMutation = (id: string, body: { leaveOut: string[]; useSpares: boolean; code: CodeChoice }) =>
  unwrapResponse(http.POST("/api/v1/training-tasks/{task_id}/restart", { params: { path: { task_id: id } }, body }));

export const growTaskMutation = (id: string) =>
  mutationOptions({
    mutationFn: () =>
      unwrapResponse(http.POST("/api/v1/training-tasks/{task_id}/grow", { params: { path: { task_id: id } } })),
  });

export const retryTaskMutation = (id: string) =>
  mutationOptions({
    mutationFn: (code: CodeChoice) =>
      unwrapResponse(
        http.POST("/api/v1/training-tasks/{task_id}/retry", { params: { path: { task_id: id } }, body: { code } }),
      ),
  });

export const requestDelete = (id: string) =>
  unwrapResponse(http.DELETE("/api/v1/training-tasks/{task_id}", { params: { path: { task_id: id } } }));

export const deleteTaskMutation = (id: string) => mutationOptions({ mutationFn: () => requestDelete(id) });

/** The request of a task, to be edited and sent again; from a checkpoint if one is given. */
export const cloneQuery = (id: string, resumeFrom?: string | null) =>
  queryOptions({
    queryKey: [...taskKeys.one(id), "clone", resumeFrom] as const,
    queryFn: async () => {
      const params = { path: { task_id: id } };
      const { request } = await unwrapResponse(http.POST("/api/v1/training-tasks/{task_id}/clone", { params }));
      return { ...(request as CreateRequest), ...(resumeFrom && { resumeFrom }) };
    },
    staleTime: Infinity,
  });

/** Refreshes the list and a task. */
export function invalidateTask(client: QueryClient, id?: string): Promise<void> {
  return client.invalidateQueries({ queryKey: id ? taskKeys.one(id) : taskKeys.all });
}

export function updateCachedTask(client: QueryClient, id: string, patch: Partial<Task>): void {
  client.setQueryData<Task>(taskKeys.detail(id), (task) => task && { ...task, ...patch });
}

/** Merges two lists that are sorted by id. Each id appears once. */
export function mergeById<T extends { id: number }>(have: T[], more: T[]): T[] {
  const fresh = more.filter((item) => have[findInsertIndex(have, item.id)]?.id !== item.id);
  const first = fresh[0];
  if (!first) return have;
  const all = [...have, ...fresh];
  return first.id > (have.at(-1)?.id ?? -Infinity) ? all : all.sort((a, b) => a.id - b.id);
}

/** Returns the index of the first item whose id is not less than `id`. */
function findInsertIndex(items: { id: number }[], id: number): number {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((items[middle]?.id ?? Infinity) < id) low = middle + 1;
    else high = middle;
  }
  return low;
}

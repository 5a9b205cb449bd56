import { mutationOptions, type QueryClient, queryOptions } from "@tanstack/react-query";
import { everyPage, http, unwrap } from "./client";
import { inventoryKeys } from "./inventory";
import type { Environment, PriceList } from "./types";

/** What is said of something, and what to do about it. */
export interface Told {
  code: string;
  message: string;
  hint?: string;
}

export type HostedState = "creating" | "starting" | "running" | "stopping" | "stopped" | "failed" | "deleted";
export type HostedAction = "open" | "start" | "stop" | "restart" | "keep" | "resize" | "clone" | "delete";

export interface Door {
  name: string;
  port: number | null;
}

export interface Kernel {
  id: string;
  name: string;
  busy: boolean;
  since: string | null;
}

/** The life of an environment that the platform makes. */
export interface Hosted {
  state: HostedState;
  since: string;
  reason: Told | null;
  doing: Told | null;
  wanted: "running" | "stopped" | "deleted";
  allowedActions: HostedAction[];
  templateId: string | null;
  templateName: string | null;
  run: number;
  idleStopMinutes: number | null;
  activeAt: string | null;
  /** When it stops by itself, if nobody uses it until then; null: never. */
  stopsAt: string | null;
  keepUntil: string | null;
  taskId: string | null;
  afterwards: string | null;
  sharedMemoryGb: number;
  diskGb: number;
  doors: Door[];
  kernels: Kernel[];
  connections: number;
  cost: { gpuHours: number; amount: number | null; currency: string };
}

/** `hosted` is null of one that was registered by hand or discovered. */
export const hostedOf = (environment: Environment): Hosted | null =>
  (environment as Environment & { hosted?: Hosted | null }).hosted ?? null;

export interface Port {
  name: string;
  port: number;
}

/** What an environment is made with, as a template says it. */
export interface TemplateFields {
  name: string;
  description: string;
  clusterId: string | null;
  kind: Environment["kind"];
  image: string;
  packages: string[];
  gpuType: string;
  gpuCount: number;
  emulated: boolean;
  cpuCores: number;
  memoryGb: number;
  sharedMemoryGb: number;
  diskGb: number;
  ports: Port[];
  env: Record<string, string>;
  secretEnv: Record<string, string>;
  startScript: string;
  idleStopMinutes: number | null;
}

export interface EnvironmentTemplate extends TemplateFields {
  id: string;
  /** null: an operator's, offered to every project. */
  projectId: string | null;
  zone: { id: string; name: string } | null;
  createdBy: string | null;
  createdAt: string;
}

/** What a person typed may be of another type than the platform wants, which says so. */
export type Typed = Record<string, unknown>;

/** Of operations that the schema does not declare yet. */
const ask = http.request as unknown as (
  method: "get" | "post" | "patch" | "delete",
  path: string,
  init?: { body?: unknown; params?: { query?: object }; headers?: Record<string, string>; signal?: AbortSignal },
) => Promise<{ data?: { code: number; data?: unknown }; error?: unknown; response: Response }>;

const answered = <T>(pending: ReturnType<typeof ask>) => unwrap<T>(pending as Parameters<typeof unwrap<T>>[0]);

const TEMPLATES = ["environment-templates"] as const;
const PAGE = 100;

export const environmentTemplatesQuery = queryOptions({
  queryKey: TEMPLATES,
  queryFn: () =>
    everyPage((page) =>
      answered<{ items: EnvironmentTemplate[]; total: number }>(
        ask("get", "/api/v1/environment-templates", { params: { query: { page, pageSize: PAGE } } }),
      ),
    ),
});

export const createTemplate = (body: Typed) =>
  answered<EnvironmentTemplate>(ask("post", "/api/v1/environment-templates", { body }));

export const changeTemplate = (id: string, body: Typed) =>
  answered<EnvironmentTemplate>(ask("patch", `/api/v1/environment-templates/${id}`, { body }));

export const deleteTemplate = (id: string) => answered(ask("delete", `/api/v1/environment-templates/${id}`));

export const templatesChanged = (client: QueryClient) => client.invalidateQueries({ queryKey: TEMPLATES });

/** The same body under the same key is the same environment, however often it is sent. */
export const makeEnvironment = (body: Typed, key: string) =>
  answered<Environment>(ask("post", "/api/v1/dev-environments/make", { body, headers: { "Idempotency-Key": key } }));

export type Steer = "start" | "stop" | "restart" | "keep" | "resize" | "clone" | "delete";

function send(id: string, act: Steer, body?: Typed) {
  const path = `/api/v1/dev-environments/${id}`;
  if (act === "delete") return answered<Environment | null>(ask("delete", path));
  return answered<Environment | null>(ask("post", `${path}/${act}`, { body: body ?? {} }));
}

/** Whatever came of it, the list and the page are asked for anew. */
export const steer = (client: QueryClient, id: string) =>
  mutationOptions({
    mutationFn: ({ act, body }: { act: Steer; body?: Typed }) => send(id, act, body),
    onSettled: () => environmentsChanged(client),
  });

export function environmentsChanged(client: QueryClient): Promise<void> {
  return client.invalidateQueries({ queryKey: inventoryKeys.environments });
}

export interface LifeEvent {
  at: string;
  code: string;
  message: string;
}

export interface EnvironmentRun {
  number: number;
  createdAt: string;
  runningAt: string | null;
  endedAt: string | null;
  outcome: Told | null;
  gpuHours: number;
  amount: number | null;
  currency: string;
}

export const lifeQuery = (id: string) =>
  queryOptions({
    queryKey: [...inventoryKeys.environments, "one", id, "life"] as const,
    queryFn: () =>
      answered<{ events: LifeEvent[]; runs: EnvironmentRun[] }>(ask("get", `/api/v1/dev-environments/${id}/life`)),
    refetchInterval: 5_000,
  });

export interface HostedLog {
  text: string;
  cursor: string | null;
  /** Older text was left out. */
  cut: boolean;
}

const NO_LOG: HostedLog = { text: "", cursor: null, cut: false };
export const LOG_KEPT = 2_000_000;

/** Reads on from where it stopped. */
export const hostedLogQuery = (id: string, run: number) =>
  queryOptions({
    queryKey: ["environment-log", id, run] as const,
    queryFn: async ({ client, queryKey, signal }) => {
      let log = client.getQueryData<HostedLog>(queryKey) ?? NO_LOG;
      for (;;) {
        const query = log.cursor === null ? {} : { cursor: log.cursor };
        const page = await answered<{ text: string; cursor: number; end: boolean }>(
          ask("get", `/api/v1/dev-environments/${id}/logs`, { params: { query }, signal }),
        );
        log = grown(log, page.text, String(page.cursor));
        client.setQueryData(queryKey, log);
        if (page.end || !page.text) return log;
      }
    },
    staleTime: Infinity,
    refetchInterval: 2_000,
  });

/** The newest of it is kept, from the beginning of a line. */
export function grown(log: HostedLog, more: string, cursor: string): HostedLog {
  const text = log.text + more;
  if (text.length <= LOG_KEPT) return { ...log, text, cursor };
  const kept = text.slice(-LOG_KEPT);
  return { text: kept.slice(kept.indexOf("\n") + 1), cursor, cut: true };
}

/** Where a door leads: a new tab, on the environment's own host name. */
export function openAddress(id: string, door?: string): string {
  return `/environments/${id}/open${door ? `?door=${encodeURIComponent(door)}` : ""}`;
}

export const endKernel = (id: string, kernel: string) =>
  answered(ask("post", `/api/v1/dev-environments/${id}/kernels/${encodeURIComponent(kernel)}/end`, { body: {} }));

export const askOwner = (id: string) => answered(ask("post", `/api/v1/dev-environments/${id}/ask-owner`, { body: {} }));

/** The most exact price counts: of the type in the zone, of the type, of the zone, of any. */
export function pricePerHour(list: PriceList | undefined, gpuType: string, zone: string | undefined, gpus: number) {
  if (!list || gpus <= 0) return null;
  const now = Date.now();
  const rows = list.prices.filter(({ since }) => Date.parse(since) <= now);
  const found = [
    [gpuType, zone],
    [gpuType, ""],
    ["", zone],
    ["", ""],
  ].flatMap(([type, where]) => rows.find((each) => each.gpuType === type && each.zoneId === where) ?? [])[0];
  return found ? { amount: found.perGpuHour * gpus, currency: list.currency } : null;
}

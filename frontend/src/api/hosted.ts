import { mutationOptions, type QueryClient, queryOptions } from "@tanstack/react-query";
import { everyPage, http, unwrap } from "./client";
import { inventoryKeys } from "./inventory";
import type { components } from "./schema";
import type { Environment, PriceList } from "./types";

type Schemas = components["schemas"];
/** The life of an environment that the platform makes. */
export type Hosted = Schemas["HostedItem"];
export type HostedAction = Hosted["allowedActions"][number];
export type Kernel = Schemas["HostedKernel"];
export type EnvironmentRun = Schemas["LifeRun"];
export type EnvironmentTemplate = Schemas["EnvironmentTemplate"];

/** What a person typed may be of another type than the platform wants, which says so. */
export type Typed = Record<string, unknown>;

const template = (id: string) => ({ path: { template_id: id } });
const environment = (id: string) => ({ path: { environment_id: id } });

const TEMPLATES = ["environment-templates"] as const;
const PAGE = 100;

export const environmentTemplatesQuery = queryOptions({
  queryKey: TEMPLATES,
  queryFn: () =>
    everyPage((page) =>
      unwrap(http.GET("/api/v1/environment-templates", { params: { query: { page, pageSize: PAGE } } })),
    ),
});

export const createTemplate = (body: Typed) =>
  unwrap(http.POST("/api/v1/environment-templates", { body: body as Schemas["EnvironmentTemplateCreateRequest"] }));

export const changeTemplate = (id: string, body: Typed) =>
  unwrap(http.PATCH("/api/v1/environment-templates/{template_id}", { params: template(id), body }));

export const deleteTemplate = (id: string) =>
  unwrap(http.DELETE("/api/v1/environment-templates/{template_id}", { params: template(id) }));

export const templatesChanged = (client: QueryClient) => client.invalidateQueries({ queryKey: TEMPLATES });

/** The same body under the same key is the same environment, however often it is sent. */
export const makeEnvironment = (body: Typed, key: string) =>
  unwrap(
    http.POST("/api/v1/dev-environments/make", {
      params: { header: { "Idempotency-Key": key } },
      body: body as Schemas["EnvironmentMakeRequest"],
    }),
  );

export type Steer = "start" | "stop" | "restart" | "keep" | "resize" | "clone" | "delete";

const ROOT = "/api/v1/dev-environments/{environment_id}";

function send(id: string, act: Steer, body: Typed = {}): Promise<Environment | null> {
  const params = environment(id);
  if (act === "delete") return unwrap(http.DELETE(ROOT, { params }));
  if (act === "keep")
    return unwrap(http.POST(`${ROOT}/keep`, { params, body: body as Schemas["EnvironmentKeepRequest"] }));
  if (act === "clone")
    return unwrap(http.POST(`${ROOT}/clone`, { params, body: body as Schemas["EnvironmentCloneRequest"] }));
  if (act === "resize") return unwrap(http.POST(`${ROOT}/resize`, { params, body }));
  return unwrap(http.POST(`${ROOT}/${act}`, { params }));
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

export const lifeQuery = (id: string) =>
  queryOptions({
    queryKey: [...inventoryKeys.environments, "one", id, "life"] as const,
    queryFn: () => unwrap(http.GET(`${ROOT}/life`, { params: environment(id) })),
    refetchInterval: 5_000,
  });

export interface HostedLog {
  text: string;
  /** null: nothing has been read. */
  cursor: number | null;
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
        const page = await unwrap(http.GET(`${ROOT}/logs`, { params: { ...environment(id), query }, signal }));
        log = grown(log, page.text, page.cursor);
        client.setQueryData(queryKey, log);
        if (page.end || !page.text) return log;
      }
    },
    staleTime: Infinity,
    refetchInterval: 2_000,
  });

/** The newest of it is kept, from the beginning of a line. */
export function grown(log: HostedLog, more: string, cursor: number): HostedLog {
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
  unwrap(http.POST(`${ROOT}/kernels/{kernel_id}/end`, { params: { path: { environment_id: id, kernel_id: kernel } } }));

export const askOwner = (id: string) => unwrap(http.POST(`${ROOT}/ask-owner`, { params: environment(id) }));

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

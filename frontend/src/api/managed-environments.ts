import { mutationOptions, type QueryClient, queryOptions } from "@tanstack/react-query";
import { fetchAllPages, http, unwrapResponse } from "./client";
import { inventoryKeys } from "./inventory";
import type { components } from "./schema";
import type { Environment, PriceList } from "./types";

type Schemas = components["schemas"];
/** The lifecycle of an environment that the platform creates. */
export type ManagedEnvironment = Schemas["HostedItem"];
export type EnvironmentAction = ManagedEnvironment["allowedActions"][number];
export type Kernel = Schemas["HostedKernel"];
export type EnvironmentRun = Schemas["LifeRun"];
export type EnvironmentTemplate = Schemas["EnvironmentTemplate"];

/** Values of a form. A value may have the wrong type; the platform then says so. */
export type FormBody = Record<string, unknown>;

const template = (id: string) => ({ path: { template_id: id } });
const environment = (id: string) => ({ path: { environment_id: id } });

const TEMPLATES = ["environment-templates"] as const;
const PAGE = 100;

export const environmentTemplatesQuery = queryOptions({
  queryKey: TEMPLATES,
  queryFn: () =>
    fetchAllPages((page) =>
      unwrapResponse(http.GET("/api/v1/environment-templates", { params: { query: { page, pageSize: PAGE } } })),
    ),
});

export const createEnvironmentTemplate = (body: FormBody) =>
  unwrapResponse(
    http.POST("/api/v1/environment-templates", { body: body as Schemas["EnvironmentTemplateCreateRequest"] }),
  );

export const updateEnvironmentTemplate = (id: string, body: FormBody) =>
  unwrapResponse(http.PATCH("/api/v1/environment-templates/{template_id}", { params: template(id), body }));

export const deleteEnvironmentTemplate = (id: string) =>
  unwrapResponse(http.DELETE("/api/v1/environment-templates/{template_id}", { params: template(id) }));

export const invalidateTemplates = (client: QueryClient) => client.invalidateQueries({ queryKey: TEMPLATES });

/** Creates an environment. The same body with the same idempotency key creates it only once. */
export const createEnvironment = (body: FormBody, key: string) =>
  unwrapResponse(
    http.POST("/api/v1/dev-environments/make", {
      params: { header: { "Idempotency-Key": key } },
      body: body as Schemas["EnvironmentMakeRequest"],
    }),
  );

export type EnvironmentOperation = "start" | "stop" | "restart" | "keep" | "resize" | "clone" | "delete";

const ROOT = "/api/v1/dev-environments/{environment_id}";

function sendOperation(id: string, act: EnvironmentOperation, body: FormBody = {}): Promise<Environment | null> {
  const params = environment(id);
  if (act === "delete") return unwrapResponse(http.DELETE(ROOT, { params }));
  if (act === "keep")
    return unwrapResponse(http.POST(`${ROOT}/keep`, { params, body: body as Schemas["EnvironmentKeepRequest"] }));
  if (act === "clone")
    return unwrapResponse(http.POST(`${ROOT}/clone`, { params, body: body as Schemas["EnvironmentCloneRequest"] }));
  if (act === "resize") return unwrapResponse(http.POST(`${ROOT}/resize`, { params, body }));
  return unwrapResponse(http.POST(`${ROOT}/${act}`, { params }));
}

/** Runs an operation on an environment. The list and the page are refreshed whatever its result. */
export const environmentMutation = (client: QueryClient, id: string) =>
  mutationOptions({
    mutationFn: ({ act, body }: { act: EnvironmentOperation; body?: FormBody }) => sendOperation(id, act, body),
    onSettled: () => invalidateEnvironments(client),
  });

export function invalidateEnvironments(client: QueryClient): Promise<void> {
  return client.invalidateQueries({ queryKey: inventoryKeys.environments });
}

export const lifecycleQuery = (id: string) =>
  queryOptions({
    queryKey: [...inventoryKeys.environments, "one", id, "life"] as const,
    queryFn: () => unwrapResponse(http.GET(`${ROOT}/life`, { params: environment(id) })),
    refetchInterval: 5_000,
  });

export interface EnvironmentLog {
  text: string;
  /** null: nothing was read yet. */
  cursor: number | null;
  /** Older text was dropped. */
  cut: boolean;
}

const NO_LOG: EnvironmentLog = { text: "", cursor: null, cut: false };
export const MAX_LOG_CHARACTERS = 2_000_000;

/** Reads the log from where the last read stopped. */
export const environmentLogQuery = (id: string, run: number) =>
  queryOptions({
    queryKey: ["environment-log", id, run] as const,
    queryFn: async ({ client, queryKey, signal }) => {
      let log = client.getQueryData<EnvironmentLog>(queryKey) ?? NO_LOG;
      for (;;) {
        const query = log.cursor === null ? {} : { cursor: log.cursor };
        const page = await unwrapResponse(http.GET(`${ROOT}/logs`, { params: { ...environment(id), query }, signal }));
        log = appendLogText(log, page.text, page.cursor);
        client.setQueryData(queryKey, log);
        if (page.end || !page.text) return log;
      }
    },
    staleTime: Infinity,
    refetchInterval: 2_000,
  });

/** Appends text. Beyond the limit the newest part is kept, from the beginning of a line. */
export function appendLogText(log: EnvironmentLog, more: string, cursor: number): EnvironmentLog {
  const text = log.text + more;
  if (text.length <= MAX_LOG_CHARACTERS) return { ...log, text, cursor };
  const stored = text.slice(-MAX_LOG_CHARACTERS);
  return { text: stored.slice(stored.indexOf("\n") + 1), cursor, cut: true };
}

/**
 * Returns the address that opens an environment, or one of its ports (`door`), in a new tab on the environment's own
 * host name.
 */
export function buildOpenUrl(id: string, door?: string): string {
  return `/environments/${id}/open${door ? `?door=${encodeURIComponent(door)}` : ""}`;
}

export const shutdownKernel = (id: string, kernel: string) =>
  unwrapResponse(
    http.POST(`${ROOT}/kernels/{kernel_id}/end`, { params: { path: { environment_id: id, kernel_id: kernel } } }),
  );

export const notifyOwner = (id: string) => unwrapResponse(http.POST(`${ROOT}/ask-owner`, { params: environment(id) }));

/**
 * Returns the price per hour by the most specific entry: for the type in the zone, the type, the zone, or all. null: no
 * price.
 */
export function calculateHourlyPrice(
  list: PriceList | undefined,
  gpuType: string,
  zone: string | undefined,
  gpus: number,
) {
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

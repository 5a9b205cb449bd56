import createClient, { type Middleware } from "openapi-fetch";
import { getLocale } from "@/i18n";
import { watchResponse } from "./connection-status";
import { ApiError } from "./errors";
import type { paths } from "./schema";

const SAFE_METHODS = new Set(["GET", "HEAD", "OPTIONS"]);

/**
 * Returns the CSRF token. Without the cookie (a page that Django did not serve, as of the dev server) a request of the
 * sign-in API sets it.
 */
export async function fetchCsrfToken(): Promise<string> {
  const read = () => /(?:^|; )csrftoken=([^;]+)/.exec(document.cookie)?.[1];
  if (!read()) await fetch("/_allauth/browser/v1/config");
  return read() ?? "";
}

const platform: Middleware = {
  async onRequest({ request }) {
    request.headers.set("Accept-Language", getLocale());
    if (!SAFE_METHODS.has(request.method)) request.headers.set("X-CSRFToken", await fetchCsrfToken());
    return request;
  },
};

/** The API's client. It calls the current `fetch`, so that tests can replace it. */
export const http = createClient<paths>({
  baseUrl: location.origin,
  fetch: (request) => watchResponse(globalThis.fetch(request)),
});
http.use(platform);

/** An answer of openapi-fetch. `string`: some operations answer a file, too. */
interface Answer<T> {
  data?: { code: number; data?: T } | string | undefined;
  error?: unknown;
  response: Response;
}

/** Returns the data of a response. Throws ApiError where the platform refused. */
export async function unwrapResponse<T>(pending: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await pending;
  if (data === undefined || typeof data === "string") throw new ApiError(response.status, error);
  return data.data as T;
}

interface PageOf<T> {
  items: T[];
  total: number;
}

const MAX_PARALLEL_PAGES = 4;

/** Returns all items of a paged list: the first page tells their number, the others are requested a few at a time. */
export async function fetchAllPages<T>(load: (page: number) => Promise<PageOf<T>>): Promise<T[]> {
  const first = await load(1);
  const items = [...first.items];
  const size = first.items.length;
  let { total } = first;
  for (let page = 2; size > 0 && items.length < total;) {
    const count = Math.min(Math.ceil((total - items.length) / size), MAX_PARALLEL_PAGES);
    const answers = await Promise.all(Array.from({ length: count }, (_, index) => load(page + index)));
    const more = answers.flatMap((answer) => answer.items);
    if (more.length === 0) break;
    items.push(...more);
    total = answers.at(-1)?.total ?? total;
    page += count;
  }
  return items;
}

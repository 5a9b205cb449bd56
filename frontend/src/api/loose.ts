import { http, unwrap } from "./client";

interface Asked {
  query?: Record<string, string | number | undefined>;
  body?: unknown;
}

type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
type Loose = Record<
  Method,
  (path: string, init: { params: { query?: Asked["query"] }; body?: unknown }) => Parameters<typeof unwrap>[0]
>;

/** An answer of which the generated types do not know yet. */
export function ask<T>(method: Method, path: string, { query, body }: Asked = {}): Promise<T> {
  const loose = http as unknown as Loose;
  return unwrap(
    loose[method](`/api/v1${path}`, { params: { ...(query && { query }) }, ...(body !== undefined && { body }) }),
  ) as Promise<T>;
}

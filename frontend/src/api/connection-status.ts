import { useSyncExternalStore } from "react";

/** `stale`: requests have had no response for a while; `offline`: the platform cannot be reached. */
export type ConnectionStatus = "live" | "stale" | "offline";

export const STALE_MS = 5_000;
const CHECK_AFTER_MS = 2_000;
const CHECK_INTERVAL_MS = 500;

/** Names of the errors of requests that the page itself aborted. */
const ABORTED_BY_PAGE = new Set(["AbortError", "TimeoutError"]);

let respondedAt = Date.now();
let unreachable = false;
let checking = false;
let current: { contact: ConnectionStatus; since: number } = { contact: "live", since: respondedAt };
const listeners = new Set<() => void>();

/** Records that the platform responded. */
export function recordResponse(): void {
  respondedAt = Date.now();
  unreachable = false;
  publishStatus();
}

/** Records whether a `fetch` got a response. Returns its response, and throws its error. */
export async function watchResponse(answer: Promise<Response>): Promise<Response> {
  try {
    const response = await answer;
    if (response.status === 502 || response.status === 504) recordFailure();
    else recordResponse();
    return response;
  } catch (error) {
    if (!ABORTED_BY_PAGE.has((error as Error).name)) recordFailure();
    throw error;
  }
}

function recordFailure(): void {
  unreachable = true;
  publishStatus();
}

function publishStatus(): void {
  const contact = unreachable ? "offline" : Date.now() - respondedAt >= STALE_MS ? "stale" : "live";
  if (contact === current.contact && (contact === "live" || current.since === respondedAt)) return;
  current = { contact, since: respondedAt };
  listeners.forEach((listener) => listener());
}

/** Requests /healthz unless there was a response lately. Hidden pages send nothing. */
function checkConnection(): void {
  if (document.visibilityState === "hidden") {
    respondedAt = Date.now();
    return;
  }
  publishStatus();
  if (checking || Date.now() - respondedAt < CHECK_AFTER_MS) return;
  checking = true;
  void watchResponse(fetch("/healthz", { cache: "no-store", signal: AbortSignal.timeout(STALE_MS) }))
    .catch(() => undefined)
    .finally(() => (checking = false));
}

/** Starts checking the connection. Returns a function that stops it. */
export function startConnectionChecks(): () => void {
  recordResponse();
  const timer = setInterval(checkConnection, CHECK_INTERVAL_MS);
  return () => clearInterval(timer);
}

/** Returns the status of the connection, and the time of the last response in milliseconds (`since`). */
export function useConnectionStatus(): { contact: ConnectionStatus; since: number } {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => current,
  );
}

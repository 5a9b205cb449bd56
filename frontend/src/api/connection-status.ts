import { useSyncExternalStore } from "react";

/** `stale`: asked, and not answered for a while; `offline`: there is nobody to ask. */
export type ConnectionStatus = "live" | "stale" | "offline";

export const STALE_MS = 5_000;
const CHECK_AFTER_MS = 2_000;
const CHECK_INTERVAL_MS = 500;

/** What a request ends with that was given up here. */
const ABORTED_BY_PAGE = new Set(["AbortError", "TimeoutError"]);

let respondedAt = Date.now();
let unreachable = false;
let checking = false;
let current: { contact: ConnectionStatus; since: number } = { contact: "live", since: respondedAt };
const listeners = new Set<() => void>();

/** The platform said something, whatever it was. */
export function recordResponse(): void {
  respondedAt = Date.now();
  unreachable = false;
  publishStatus();
}

/** What `fetch` gives, listened to: whether there was an answer, or nobody to give one. */
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

/** Asks for a sign of life where nothing else has brought one lately. A page that nobody sees asks for nothing. */
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

/** Begins to watch over the connection; gives what ends it. */
export function startConnectionChecks(): () => void {
  recordResponse();
  const timer = setInterval(checkConnection, CHECK_INTERVAL_MS);
  return () => clearInterval(timer);
}

/** `since`: when the platform was last heard. */
export function useConnectionStatus(): { contact: ConnectionStatus; since: number } {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => current,
  );
}

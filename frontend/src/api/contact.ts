import { useSyncExternalStore } from "react";

/** `stale`: asked, and not answered for a while; `offline`: there is nobody to ask. */
export type Contact = "live" | "stale" | "offline";

export const STALE_MS = 5_000;
const QUIET_MS = 2_000;
const LOOK_MS = 500;

/** What a request ends with that was given up here. */
const OURS = new Set(["AbortError", "TimeoutError"]);

let heardAt = Date.now();
let refused = false;
let asking = false;
let shown: { contact: Contact; since: number } = { contact: "live", since: heardAt };
const listeners = new Set<() => void>();

/** The platform said something, whatever it was. */
export function heard(): void {
  heardAt = Date.now();
  refused = false;
  show();
}

/** What `fetch` gives, listened to: whether there was an answer, or nobody to give one. */
export async function listened(answer: Promise<Response>): Promise<Response> {
  try {
    const response = await answer;
    if (response.status === 502 || response.status === 504) lost();
    else heard();
    return response;
  } catch (error) {
    if (!OURS.has((error as Error).name)) lost();
    throw error;
  }
}

function lost(): void {
  refused = true;
  show();
}

function show(): void {
  const contact = refused ? "offline" : Date.now() - heardAt >= STALE_MS ? "stale" : "live";
  if (contact === shown.contact && (contact === "live" || shown.since === heardAt)) return;
  shown = { contact, since: heardAt };
  listeners.forEach((listener) => listener());
}

/** Asks for a sign of life where nothing else has brought one lately. A page that nobody sees asks for nothing. */
function look(): void {
  if (document.visibilityState === "hidden") {
    heardAt = Date.now();
    return;
  }
  show();
  if (asking || Date.now() - heardAt < QUIET_MS) return;
  asking = true;
  void listened(fetch("/healthz", { cache: "no-store", signal: AbortSignal.timeout(STALE_MS) }))
    .catch(() => undefined)
    .finally(() => (asking = false));
}

/** Begins to watch over the connection; gives what ends it. */
export function watchContact(): () => void {
  heard();
  const timer = setInterval(look, LOOK_MS);
  return () => clearInterval(timer);
}

/** `since`: when the platform was last heard. */
export function useContact(): { contact: Contact; since: number } {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => shown,
  );
}

import type { Problem } from "./types";

interface ErrorBody {
  message?: string;
  error?: string;
  errors?: Problem[];
  requestId?: string;
}

/** What the platform refused, with everything it said. `problems` is empty unless fields were at fault. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly problems: Problem[];
  readonly requestId: string | undefined;

  constructor(status: number, body: unknown) {
    const said: ErrorBody = typeof body === "object" && body !== null ? body : {};
    super(said.message ?? `HTTP ${status}`);
    this.name = "ApiError";
    this.status = status;
    this.code = said.error ?? "UNKNOWN";
    this.problems = said.errors ?? [];
    this.requestId = said.requestId;
  }
}

export function isSignedOut(error: unknown): boolean {
  return error instanceof ApiError && error.status === 401;
}

/** A refusal stays a refusal however often it is asked; a dead connection may come back. */
export function isRetryable(failures: number, error: unknown): boolean {
  return failures < 2 && !(error instanceof ApiError && error.status < 500);
}

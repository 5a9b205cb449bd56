import type { Problem } from "./types";

interface ErrorBody {
  message?: string;
  error?: string;
  errors?: Problem[];
  requestId?: string;
}

/** A refused request: HTTP status, code, message and request id. `problems` is empty unless fields are wrong. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly problems: Problem[];
  readonly requestId: string | undefined;

  constructor(status: number, body: unknown) {
    const text: ErrorBody = typeof body === "object" && body !== null ? body : {};
    super(text.message ?? `HTTP ${status}`);
    this.name = "ApiError";
    this.status = status;
    this.code = text.error ?? "UNKNOWN";
    this.problems = text.errors ?? [];
    this.requestId = text.requestId;
  }
}

export function isSignedOut(error: unknown): boolean {
  return error instanceof ApiError && error.status === 401;
}

/** Returns whether to repeat a request: not after a refusal, but after a failed connection. */
export function isRetryable(failures: number, error: unknown): boolean {
  return failures < 2 && !(error instanceof ApiError && error.status < 500);
}

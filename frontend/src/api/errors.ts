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

const SIGN_IN_STEPS = new Set(["BANNER_NOT_ACCEPTED", "SECOND_FACTOR_REQUIRED"]);

/** Returns whether the session may do nothing before its user accepts a notice or sets a second factor up. */
export function needsSignInStep(error: unknown): boolean {
  return error instanceof ApiError && SIGN_IN_STEPS.has(error.code);
}

/** Returns whether to repeat a request: not after a refusal, but after a failed connection. */
export function isRetryable(failures: number, error: unknown): boolean {
  return failures < 2 && !(error instanceof ApiError && error.status < 500);
}

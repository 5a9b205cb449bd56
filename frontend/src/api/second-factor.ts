import { getLocale } from "@/i18n";
import { fetchCsrfToken } from "./client";
import { ApiError } from "./errors";

const ROOT = "/_allauth/browser/v1";
const TOTP = "/account/authenticators/totp";
const RECOVERY_CODES = "/account/authenticators/recovery-codes";

/** Code of ApiError: the password is to be entered again before this. */
export const PASSWORD_AGAIN = "password_again";

interface Answer {
  errors?: { code: string; message: string }[];
  data?: { unused_codes?: string[]; flows?: { id: string }[] };
  meta?: { secret?: string };
}

async function call(method: string, path: string, body?: object): Promise<{ status: number; answer: Answer }> {
  const response = await fetch(ROOT + path, {
    method,
    headers: {
      "Accept-Language": getLocale(),
      "Content-Type": "application/json",
      "X-CSRFToken": await fetchCsrfToken(),
    },
    ...(body && { body: JSON.stringify(body) }),
  });
  return { status: response.status, answer: (await response.json().catch(() => ({}))) as Answer };
}

function refuse(status: number, answer: Answer): never {
  if (answer.data?.flows?.some(({ id }) => id === "reauthenticate")) throw new ApiError(401, { error: PASSWORD_AGAIN });
  const message = answer.errors?.map((error) => error.message).join(" ");
  throw new ApiError(status, { error: answer.errors?.[0]?.code ?? "unknown", message });
}

/** Begins to set a second factor up, and returns its key; null if there is one already. */
export async function startSecondFactor(): Promise<string | null> {
  const { status, answer } = await call("GET", TOTP);
  if (status === 200) return null;
  return answer.meta?.secret ?? refuse(status, answer);
}

/** Picture of the key that `startSecondFactor` returned. */
export const getPictureUrl = (secret: string) => `/auth/second-factor.svg?of=${encodeURIComponent(secret.slice(0, 4))}`;

/** Sets the second factor up, by a code that an app shows for the key. */
export async function activateSecondFactor(code: string): Promise<void> {
  const { status, answer } = await call("POST", TOTP, { code });
  if (status !== 200) refuse(status, answer);
}

export async function removeSecondFactor(): Promise<void> {
  const { status, answer } = await call("DELETE", TOTP);
  if (status !== 200) refuse(status, answer);
}

/** The codes that sign in once each without the app. */
export async function fetchRecoveryCodes(): Promise<string[]> {
  const { status, answer } = await call("GET", RECOVERY_CODES);
  if (status === 200 && answer.data?.unused_codes) return answer.data.unused_codes;
  const made = await call("POST", RECOVERY_CODES, {});
  if (made.status !== 200) refuse(made.status, made.answer);
  return made.answer.data?.unused_codes ?? [];
}

export async function confirmPassword(password: string): Promise<void> {
  const { status, answer } = await call("POST", "/auth/reauthenticate", { password });
  if (status !== 200) refuse(status, answer);
}

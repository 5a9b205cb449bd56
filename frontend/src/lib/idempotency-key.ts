/** Returns 128 random bits in hex. `crypto.randomUUID` exists on https and localhost only. */
export function createIdempotencyKey(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

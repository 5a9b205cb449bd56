/** Parses what a person typed into what the API takes. */

/** Returns the number, or the text as it was typed if it is none. */
export function parseNumber(text: string): number | string {
  const number = Number(text);
  return text.trim() !== "" && Number.isFinite(number) ? number : text;
}

/** Returns the lines that are not blank. */
export function parseLines(text: string): string[] {
  return text.split("\n").filter((line) => line.trim() !== "");
}

/** Parses one NAME=value per line. */
export function parseVariables(text: string): Record<string, string> {
  return Object.fromEntries(
    parseLines(text).map((line) => {
      const [name = "", ...value] = line.split("=");
      return [name.trim(), value.join("=")];
    }),
  );
}

/** Seconds in each unit of time. */
// prettier-ignore
const UNITS: Record<string, number> = {
  s: 1, sec: 1, 秒: 1,
  m: 60, min: 60, 分: 60, 分钟: 60,
  h: 3600, 时: 3600, 小时: 3600,
  d: 86400, 天: 86400,
};
const PART = /(\d+(?:\.\d+)?)\s*(分钟|小时|sec|min|[smhd秒分时天])\s*/gy;

/**
 * Parses a time such as `90`, `5m` or `1h30m` to units of `unit` seconds, which is also the unit of a bare number.
 * Invalid text is returned unchanged.
 */
export function parseDuration(text: string, unit: number): number | string {
  const typed = text.trim().toLowerCase();
  const bare = parseNumber(typed);
  if (typeof bare === "number") return bare;
  const parts = [...typed.matchAll(PART)];
  if (parts.length === 0 || parts.map(([part]) => part).join("") !== typed) return text;
  const seconds = parts.reduce((sum, [, count, name]) => sum + Number(count) * (UNITS[name ?? ""] ?? 0), 0);
  return seconds / unit;
}

/** Formats a time as a person would type it: `1h30m`. */
export function formatDurationInput(count: number, unit: number): string {
  const seconds = count * unit;
  if (!Number.isInteger(seconds) || seconds <= 0) return `${seconds}s`;
  let left = seconds;
  return ["d", "h", "m", "s"]
    .flatMap((name) => {
      const size = UNITS[name] ?? 1;
      const full = Math.floor(left / size);
      left -= full * size;
      return full > 0 ? [`${full}${name}`] : [];
    })
    .join("");
}

/** What a person typed, as what the API takes. */

/** What is not a number stays as it was typed. */
export function parseNumber(text: string): number | string {
  const number = Number(text);
  return text.trim() !== "" && Number.isFinite(number) ? number : text;
}

/** One item a line. */
export function parseLines(text: string): string[] {
  return text.split("\n").filter((line) => line.trim() !== "");
}

/** One NAME=value a line. */
export function parseVariables(text: string): Record<string, string> {
  return Object.fromEntries(
    parseLines(text).map((line) => {
      const [name = "", ...value] = line.split("=");
      return [name.trim(), value.join("=")];
    }),
  );
}

/** Seconds in each unit in which a time is typed. */
// prettier-ignore
const UNITS: Record<string, number> = {
  s: 1, sec: 1, 秒: 1,
  m: 60, min: 60, 分: 60, 分钟: 60,
  h: 3600, 时: 3600, 小时: 3600,
  d: 86400, 天: 86400,
};
const PART = /(\d+(?:\.\d+)?)\s*(分钟|小时|sec|min|[smhd秒分时天])\s*/gy;

/**
 * A time such as `90`, `5m` or `1h30m`, in units of `unit` seconds, which a bare number has, too; what is none stays as
 * it was typed.
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

/** As it would be typed: `1h30m`. */
export function formatDurationInput(count: number, unit: number): string {
  const seconds = count * unit;
  if (!Number.isInteger(seconds) || seconds <= 0) return `${seconds}s`;
  let left = seconds;
  return ["d", "h", "m", "s"]
    .flatMap((name) => {
      const size = UNITS[name] ?? 1;
      const whole = Math.floor(left / size);
      left -= whole * size;
      return whole > 0 ? [`${whole}${name}`] : [];
    })
    .join("");
}

import type { LogLine } from "@/api/logs";

/** Finds the lines with a text. Of a log that has grown only the new lines are searched. */
export class LogSearch {
  private needle = "";
  private seen: LogLine[] = [];
  private found: LogLine[] = [];

  /** `needle` in lower case; empty matches every line. */
  among(lines: LogLine[], needle: string): LogLine[] {
    if (!needle) return lines;
    if (lines === this.seen && needle === this.needle) return this.found;
    const grown = needle === this.needle && isContinuationOf(lines, this.seen);
    const fresh = (grown ? lines.slice(this.seen.length) : lines).filter(({ text }) =>
      text.toLowerCase().includes(needle),
    );
    if (!grown) this.found = fresh;
    else if (fresh.length > 0) this.found = [...this.found, ...fresh];
    this.needle = needle;
    this.seen = lines;
    return this.found;
  }
}

function isContinuationOf(lines: LogLine[], before: LogLine[]): boolean {
  const last = before.length - 1;
  return last >= 0 && lines[0] === before[0] && lines[last] === before[last];
}

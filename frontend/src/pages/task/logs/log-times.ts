import type { LogLine } from "@/api/logs";

/** Returns the time of a line, or else of the last line before it that has one. */
export function getTimeAt(lines: LogLine[], index: number): number | undefined {
  for (let at = Math.min(index, lines.length - 1); at >= 0; at--) {
    const time = lines[at]?.at;
    if (time !== undefined) return time;
  }
  return undefined;
}

/** Returns the index of the first line at a time or after it, or of the last line; undefined if no line has a time. */
export function findIndexAt(lines: LogLine[], time: number): number | undefined {
  const index = lines.findIndex(({ at }) => at !== undefined && at >= time);
  if (index !== -1) return index;
  return lines.some(({ at }) => at !== undefined) ? lines.length - 1 : undefined;
}

/** Scrolls logs together: when the user scrolls one, the others go to the same time. */
export class ScrollSync {
  private readonly logs = new Map<number, (time: number) => void>();
  private leader: number | undefined;

  join(id: number, go: (time: number) => void): () => void {
    this.logs.set(id, go);
    return () => void this.logs.delete(id);
  }

  /** The user scrolls this one; scrolling of the others that follows from it is ignored. */
  lead(id: number): void {
    this.leader = id;
  }

  moved(id: number, time: number | undefined): void {
    if (id !== this.leader || time === undefined) return;
    for (const [other, go] of this.logs) if (other !== id) go(time);
  }
}

const padTwoDigits = (value: number) => String(value).padStart(2, "0");

/** Formats a time for `<input type="datetime-local">`: local time with seconds. */
export function formatLocalTime(iso: string | undefined): string {
  if (!iso) return "";
  const at = new Date(iso);
  const day = [at.getFullYear(), padTwoDigits(at.getMonth() + 1), padTwoDigits(at.getDate())].join("-");
  return `${day}T${[at.getHours(), at.getMinutes(), at.getSeconds()].map(padTwoDigits).join(":")}`;
}

export function parseLocalTime(local: string): string | undefined {
  const at = new Date(local);
  return Number.isNaN(at.getTime()) ? undefined : at.toISOString();
}

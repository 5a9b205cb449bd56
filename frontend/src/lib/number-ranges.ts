/** Ranges longer than any list that one would ask for are not spelt out. */
export const MAX_NUMBERS = 256;

/** "0-2,5": 0, 1, 2 and 5, all below `end`; undefined for what says no such numbers, or too many. */
export function parseNumberRanges(text: string, end: number): number[] | undefined {
  const found = new Set<number>();
  for (const part of text.split(/[,，\s]+/).filter(Boolean)) {
    const [, first, last = first] = /^(\d+)(?:[-–](\d+))?$/.exec(part) ?? [];
    if (first === undefined || Number(last) >= end || Number(first) > Number(last)) return undefined;
    for (let number = Number(first); number <= Number(last); number++) {
      found.add(number);
      if (found.size > MAX_NUMBERS) return undefined;
    }
  }
  return [...found].sort((a, b) => a - b);
}

/** The most numbers in a text. */
export const MAX_NUMBERS = 256;

/**
 * Parses "0-2,5" to 0, 1, 2 and 5. Returns undefined if a number is not below `end`, if there are too many, or if the
 * text is invalid.
 */
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

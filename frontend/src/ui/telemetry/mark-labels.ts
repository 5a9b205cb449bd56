export interface TimeMark {
  /** Unix seconds. */
  at: number;
  label: string;
  bad?: boolean;
}

/** A label above marks; labels do not overlap. */
export interface MarkLabel {
  x: number;
  text: string;
  bad: boolean;
}

const MIN_DISTANCE_PX = 8;

/**
 * Groups marks whose labels would overlap: the first label, and the number of others. `marks` are sorted, with their
 * positions.
 */
export function groupMarkLabels(
  marks: (TimeMark & { x: number })[],
  widthOf: (text: string) => number,
  right: number,
): MarkLabel[] {
  const groups: { x: number; label: string; more: number; bad: boolean }[] = [];
  const textOf = ({ label, more }: { label: string; more: number }) => (more ? `${label} +${more}` : label);
  for (const { x, label, bad = false } of marks) {
    const last = groups.at(-1);
    if (last && x < last.x + widthOf(textOf({ ...last, more: last.more + 1 })) + MIN_DISTANCE_PX) {
      last.more++;
      last.bad ||= bad;
    } else groups.push({ x, label, more: 0, bad });
  }
  return groups.map((group) => {
    const text = textOf(group);
    return { x: Math.min(group.x, right - widthOf(text)), text, bad: group.bad };
  });
}

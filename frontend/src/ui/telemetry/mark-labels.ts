export interface TimeMark {
  /** Unix seconds. */
  at: number;
  label: string;
  bad?: boolean;
}

/** Texts above the marks, of which none covers another. */
export interface MarkLabel {
  x: number;
  text: string;
  bad: boolean;
}

const MIN_DISTANCE_PX = 8;

/** Marks whose texts would touch share the first one's, with how many more there are. `marks` in order, with their places. */
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

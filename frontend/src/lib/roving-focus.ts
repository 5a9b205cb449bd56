import type { KeyboardEvent } from "react";

const getCenterX = ({ left, right }: DOMRect) => (left + right) / 2;

/** The one above or below: of the nearest line there, the one most nearly in line with it. */
function findInAdjacentLine(items: HTMLElement[], from: DOMRect, down: boolean): HTMLElement | undefined {
  const placed = items.map((item) => ({ item, box: item.getBoundingClientRect() }));
  const beyond = placed.filter(({ box }) => (down ? box.top >= from.bottom : box.bottom <= from.top));
  const far = ({ box }: { box: DOMRect }) => (down ? box.top - from.bottom : from.top - box.bottom);
  const line = Math.min(...beyond.map(far));
  const off = ({ box }: { box: DOMRect }) => Math.abs(getCenterX(box) - getCenterX(from));
  return beyond.filter((each) => far(each) - line < 1).sort((one, other) => off(one) - off(other))[0]?.item;
}

/** For `onKeyDown` around many buttons of which one is a tab stop: arrows, Home and End move among those with
 * `data-rove`. */
export function moveRovingFocus(event: KeyboardEvent<HTMLElement>): void {
  const items = [...event.currentTarget.querySelectorAll<HTMLElement>("[data-rove]")];
  const here = (event.target as HTMLElement).closest<HTMLElement>("[data-rove]");
  const at = here ? items.indexOf(here) : -1;
  if (!here || at < 0) return;
  const box = here.getBoundingClientRect();
  const ways: Record<string, () => HTMLElement | undefined> = {
    ArrowRight: () => items[at + 1],
    ArrowLeft: () => items[at - 1],
    ArrowDown: () => findInAdjacentLine(items, box, true),
    ArrowUp: () => findInAdjacentLine(items, box, false),
    Home: () => items[0],
    End: () => items.at(-1),
  };
  const way = ways[event.key];
  if (!way) return;
  event.preventDefault();
  way()?.focus();
}

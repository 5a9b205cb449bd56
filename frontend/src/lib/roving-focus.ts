import type { KeyboardEvent } from "react";

const getCenterX = ({ left, right }: DOMRect) => (left + right) / 2;

/** Returns the item in the nearest line above or below that is closest to the same column. */
function findInAdjacentLine(items: HTMLElement[], from: DOMRect, down: boolean): HTMLElement | undefined {
  const placed = items.map((item) => ({ item, box: item.getBoundingClientRect() }));
  const beyond = placed.filter(({ box }) => (down ? box.top >= from.bottom : box.bottom <= from.top));
  const far = ({ box }: { box: DOMRect }) => (down ? box.top - from.bottom : from.top - box.bottom);
  const line = Math.min(...beyond.map(far));
  const off = ({ box }: { box: DOMRect }) => Math.abs(getCenterX(box) - getCenterX(from));
  return beyond.filter((each) => far(each) - line < 1).sort((one, other) => off(one) - off(other))[0]?.item;
}

/**
 * Handles keys around many buttons that share one tab stop: the arrows, Home and End move among elements with `data-
 * rove`.
 */
export function moveRovingFocus(event: KeyboardEvent<HTMLElement>): void {
  const items = [...event.currentTarget.querySelectorAll<HTMLElement>("[data-rove]")];
  const current = (event.target as HTMLElement).closest<HTMLElement>("[data-rove]");
  const at = current ? items.indexOf(current) : -1;
  if (!current || at < 0) return;
  const box = current.getBoundingClientRect();
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

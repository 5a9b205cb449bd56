import { useSyncExternalStore } from "react";

/** The pointer's position on the time axis in unix seconds; null outside of the charts. */
export class ChartCursor {
  private at: number | null = null;
  private readonly listeners = new Set<() => void>();

  readonly get = () => this.at;

  readonly set = (at: number | null) => {
    if (at === this.at) return;
    this.at = at;
    this.listeners.forEach((listener) => listener());
  };

  readonly subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
}

/**
 * Returns what `of` computes from the cursor's position. The component is rendered again only when the result changes.
 */
export function useChartCursor<T extends number | string | null>(cursor: ChartCursor, of: (at: number | null) => T): T {
  return useSyncExternalStore(cursor.subscribe, () => of(cursor.get()));
}

/** Returns the index of the sorted time nearest to `at`; null if there is none. */
export function findNearestIndex(moments: number[], at: number | null): number | null {
  if (at === null || moments.length === 0) return null;
  let low = 0;
  let high = moments.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((moments[middle] ?? 0) < at) low = middle + 1;
    else high = middle;
  }
  const [before, after] = [moments[low - 1], moments[low] ?? 0];
  return before !== undefined && at - before < after - at ? low - 1 : low;
}

import type { Level, Preflight } from "@/api/types";

export type PreflightNode = Preflight["nodes"][number];
export type Pair = Preflight["pairs"][number];

/** A cell of the matrix: a node (on the diagonal), or the link from one node to another. */
export interface Cell {
  from: PreflightNode;
  to: PreflightNode;
  /** The result of the link. Undefined on the diagonal, and before there is a result. */
  pair: Pair | undefined;
  /** Undefined before there is a result. */
  level: Level | undefined;
}

/** Returns all cells, also of nodes without results, so that nothing moves when results arrive. */
export function buildCells({ nodes, pairs, status }: Preflight): Cell[][] {
  const known = (level: Level | undefined) =>
    level === "unknown" && (status === "queued" || status === "running") ? undefined : level;
  const found = new Map(pairs.map((pair) => [`${pair.from} ${pair.to}`, pair]));
  return nodes.map((from) =>
    nodes.map((to) => {
      if (from === to) return { from, to, pair: undefined, level: known(from.level) };
      const pair = found.get(`${from.environmentId} ${to.environmentId}`);
      return { from, to, pair, level: known(pair?.level) };
    }),
  );
}

const SEVERITY: Record<Level, number> = { fail: 3, warn: 2, unknown: 1, pass: 0 };

export function getSeverity(level: Level | undefined): number {
  return level === undefined ? -1 : SEVERITY[level];
}

/** Returns the worst cell; of equally bad ones, a node before a link. */
export function findWorstCell(cells: Cell[][]): [row: number, column: number] {
  let worst: [number, number] = [0, 0];
  const rank = ([row, column]: [number, number]) =>
    2 * getSeverity(cells[row]?.[column]?.level) + (row === column ? 1 : 0);
  cells.forEach((line, row) =>
    line.forEach((_, column) => {
      if (rank([row, column]) > rank(worst)) worst = [row, column];
    }),
  );
  return worst;
}

const STEP: Record<string, [row: number, column: number]> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

/** Returns the cell that a key moves to, if any. */
export function moveSelection(
  [row, column]: [number, number],
  key: string,
  size: number,
): [row: number, column: number] | undefined {
  if (key === "Home") return [row, 0];
  if (key === "End") return [row, size - 1];
  const step = STEP[key];
  if (!step) return undefined;
  const within = (place: number) => Math.min(Math.max(place, 0), size - 1);
  return [within(row + step[0]), within(column + step[1])];
}

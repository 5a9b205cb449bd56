import { expect, test } from "vitest";
import type { TaskNode } from "@/api/types";
import { pulse, seen, used } from "./fixtures";
import type { RankSnapshot } from "./rank-metrics";
import { findOutliers } from "./outliers";

const NODES = [0, 1, 2, 3].map((nodeRank) => ({ nodeRank, name: `node-${nodeRank}` }) as TaskNode);
const gang = (over: (rank: number) => Partial<Omit<RankSnapshot, "rank">>, size = 16) =>
  Array.from({ length: size }, (_, rank) => seen(rank, { node: NODES[Math.floor(rank / 4)], ...over(rank) }));
const busy = (odd: Record<number, number>, size?: number) =>
  findOutliers(gang((rank) => ({ use: used(rank, { gpu: odd[rank] ?? 96 }) }), size));

test("a GPU that is far less busy than the others is named with its node", () => {
  expect(busy({ 6: 12 })).toEqual([{ node: NODES[1], ranks: [6], amount: "gpu", value: 12, middle: 96 }]);
});

test("ranks of one node are named together, and the furthest come first", () => {
  const found = busy({ 0: 40, 12: 5, 14: 9 });
  expect(found.map(({ ranks, value }) => [ranks, value])).toEqual([
    [[12, 14], 5],
    [[0], 40],
  ]);
});

test("nobody is odd where values differ a little, where a large part differs, or where there are few", () => {
  expect(busy({ 3: 70 })).toEqual([]);
  expect(busy({ 0: 5, 1: 5, 2: 5, 3: 5, 4: 5 })).toEqual([]);
  expect(busy({ 0: 5 }, 3)).toEqual([]);
});

test("a GPU that is busier than the others is not odd, a hotter one is", () => {
  const one = (rank: number) => used(rank, { gpu: rank === 5 ? 100 : 40, temperature: rank === 5 ? 88 : 60 });
  expect(findOutliers(gang((rank) => ({ use: one(rank) }))).map(({ amount }) => amount)).toEqual(["temperature"]);
});

test("a rank that makes no step is named for this alone", () => {
  const found = findOutliers(
    gang((rank) => ({
      pulse: pulse(rank, { sinceStep: rank === 9 ? 75 : 0.5 }),
      use: used(rank, { gpu: rank === 9 ? 0 : 97 }),
      lag: rank === 9 ? 300 : 0,
    })),
  );
  expect(found).toEqual([{ node: NODES[2], ranks: [9], amount: "silent", value: 75, middle: 0.5 }]);
});

test("of ranks that have ended nothing is said", () => {
  const all = gang((rank) => ({ use: used(rank, { gpu: rank === 1 ? 0 : 96 }) }));
  const [, ended] = all;
  if (ended) ended.rank.state = "exited";
  expect(findOutliers(all)).toEqual([]);
});

import { expect, test } from "vitest";
import { ChartCursor, findNearestIndex } from "./use-chart-cursor";
import { groupMarkLabels } from "./mark-labels";

const width = (text: string) => text.length * 10;
const mark = (x: number, label: string, bad = false) => ({ at: x, x, label, bad });

test("texts of marks that would touch are one, with how many there are more", () => {
  const texts = groupMarkLabels(
    [mark(0, "one"), mark(20, "two", true), mark(30, "three"), mark(200, "four")],
    width,
    1000,
  );
  expect(texts).toEqual([
    { x: 0, text: "one +2", bad: true },
    { x: 200, text: "four", bad: false },
  ]);
  expect(groupMarkLabels([mark(990, "late")], width, 1000)).toEqual([{ x: 960, text: "late", bad: false }]);
});

test("the moment nearest to the cursor counts", () => {
  expect([null, -5, 14, 16, 99].map((at) => findNearestIndex([0, 10, 20], at))).toEqual([null, 0, 1, 2, 2]);
  expect(findNearestIndex([], 5)).toBeNull();
});

test("who listens to the cursor hears of each new place once", () => {
  const cursor = new ChartCursor();
  const heard: (number | null)[] = [];
  const silent = cursor.subscribe(() => heard.push(cursor.get()));
  [5, 5, null, 7].forEach(cursor.set);
  silent();
  cursor.set(9);
  expect(heard).toEqual([5, null, 7]);
});

import { expect, test } from "vitest";
import { DEFAULT_COLUMNS, isPlainAddress, moveBy, moveTo, readTableState, writeTableState } from "./table-state";

const read = (text: string) => readTableState(new URLSearchParams(text));

test("an address holds all that a table shows, and comes back from it", () => {
  const address =
    "query=lr%3E1&column=status&column=param.lr&sort=-loss&by=param.lr&pin=task-1&baseline=task-2&archived=true";
  const state = read(address);
  expect(state).toEqual({
    query: "lr>1",
    columns: ["status", "param.lr"],
    sort: "-loss",
    groupBy: ["param.lr"],
    pinned: ["task-1"],
    baseline: "task-2",
    archived: true,
  });
  expect(writeTableState(state).toString()).toBe(address);
});

test("an address without anything shows the default columns, and says nothing of them", () => {
  expect(read("").columns).toEqual(DEFAULT_COLUMNS);
  expect(writeTableState(read("")).toString()).toBe("");
  expect(isPlainAddress(new URLSearchParams("embed=1"))).toBe(true);
  expect(isPlainAddress(new URLSearchParams("view=all"))).toBe(false);
});

test("what the platform would refuse by its number is cut off, and what is twice counts once", () => {
  const many = (name: string, count: number) => Array.from({ length: count }, (_, at) => `${name}=x${at}`).join("&");
  const state = read(`${many("column", 60)}&column=x1&${many("by", 5)}&${many("pin", 30)}`);
  expect([state.columns.length, state.groupBy.length, state.pinned.length]).toEqual([40, 3, 20]);
});

test("a column moves to the place of another one, or by one place, and never out of the list", () => {
  const list = ["a", "b", "c"];
  expect(moveTo(list, "a", "c")).toEqual(["b", "c", "a"]);
  expect(moveTo(list, "c", "a")).toEqual(["c", "a", "b"]);
  expect(moveBy(list, "b", -1)).toEqual(["b", "a", "c"]);
  expect(moveBy(list, "c", 1)).toEqual(list);
  expect(moveTo(list, "z", "a")).toEqual(list);
});

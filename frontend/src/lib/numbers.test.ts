import { expect, test } from "vitest";
import { MOST_NUMBERS, numbersOf } from "./numbers";

test("numbers and ranges of them are read in any order", () => {
  expect(numbersOf("5, 0-2，2", 8)).toEqual([0, 1, 2, 5]);
  expect(numbersOf("", 8)).toEqual([]);
  expect(numbersOf("7", 8)).toEqual([7]);
});

test("what is no number, is beyond the last or backwards is refused", () => {
  for (const text of ["a", "1-", "-1", "8", "0-8", "3-1", "1.5"]) expect(numbersOf(text, 8)).toBeUndefined();
  expect(numbersOf(`0-${MOST_NUMBERS - 1}`, 10_000)).toHaveLength(MOST_NUMBERS);
  expect(numbersOf(`0-${MOST_NUMBERS}`, 10_000)).toBeUndefined();
});

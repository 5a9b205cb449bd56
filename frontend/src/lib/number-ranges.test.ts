import { expect, test } from "vitest";
import { MAX_NUMBERS, parseNumberRanges } from "./number-ranges";

test("numbers and ranges of them are read in any order", () => {
  expect(parseNumberRanges("5, 0-2，2", 8)).toEqual([0, 1, 2, 5]);
  expect(parseNumberRanges("", 8)).toEqual([]);
  expect(parseNumberRanges("7", 8)).toEqual([7]);
});

test("what is no number, is beyond the last or backwards is refused", () => {
  for (const text of ["a", "1-", "-1", "8", "0-8", "3-1", "1.5"]) expect(parseNumberRanges(text, 8)).toBeUndefined();
  expect(parseNumberRanges(`0-${MAX_NUMBERS - 1}`, 10_000)).toHaveLength(MAX_NUMBERS);
  expect(parseNumberRanges(`0-${MAX_NUMBERS}`, 10_000)).toBeUndefined();
});

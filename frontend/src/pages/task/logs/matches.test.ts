import { expect, test } from "vitest";
import { compileExpression, findMatches, findText } from "./matches";

test("a text is found wherever it is, whatever its case", () => {
  expect(findText("Loss loss LOSS", "loss")).toEqual([
    [0, 4],
    [5, 9],
    [10, 14],
  ]);
  expect(findText("aaa", "b")).toEqual([]);
});

const found = (search: string, text: string) => {
  const expression = compileExpression(search);
  return expression && findMatches(text, expression).map(([from, to]) => text.slice(from, to));
};

test("an expression is found as the platform finds it", () => {
  expect(found("loss=\\d+", "LOSS=12 loss=3")).toEqual(["LOSS=12", "loss=3"]);
  expect(found("(?i)rank (?P<n>\\d)", "Rank 3")).toEqual(["Rank 3"]);
  expect(found("x*", "axxb")).toEqual(["xx"]);
});

test("what JavaScript would not read, or read as something else, is not marked", () => {
  for (const search of ["(", "\\pL+", "\\Aloss", "[[:alpha:]]", "(?-i)loss", "(?i:loss)", "(a)\\1", "(?=a)"]) {
    expect(compileExpression(search), search).toBeUndefined();
  }
});

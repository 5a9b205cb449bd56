import { expect, test } from "vitest";
import { ApiError } from "@/api/errors";
import { applyCompletion, countCharacters, narrowQuery, quoteField, quoteValue, readQueryProblem } from "./query-text";

test("a completion replaces its part of the text, and a value is followed by a space", () => {
  const field = { text: "status:", kind: "field", detail: "" };
  expect(applyCompletion("lr>1 sta", { from: 5, to: 8 }, field)).toEqual({ text: "lr>1 status:", cursor: 12 });
  const value = { text: "failed", kind: "value", detail: "" };
  expect(applyCompletion("status:f", { from: 7, to: 8 }, value)).toEqual({ text: "status:failed ", cursor: 14 });
  expect(applyCompletion("(status:f) a", { from: 8, to: 9 }, value).text).toBe("(status:failed) a");
});

test("places count characters as the platform does, also behind those of two units", () => {
  const text = "name:🙂𠮷 lr";
  expect(countCharacters(text, text.length)).toBe(10);
  const item = { text: "lr>", kind: "parameter", detail: "" };
  expect(applyCompletion(text, { from: 8, to: 10 }, item).text).toBe("name:🙂𠮷 lr>");
  const problem = { field: "query", error: "QUERY_X", message: "Wrong.", hint: "", place: { from: 8, to: 10 } };
  const error = new ApiError(400, { errors: [problem] });
  expect(readQueryProblem(error, text)).toEqual({ message: "Wrong.", from: 10, to: 12 });
});

test("a problem without a place is shown without one, and an error of something else is none of the query", () => {
  const problem = { field: "query", error: "QUERY_X", message: "Wrong.", hint: "Write it otherwise." };
  expect(readQueryProblem(new ApiError(400, { errors: [problem] }), "x")).toEqual({
    message: "Wrong. Write it otherwise.",
  });
  expect(readQueryProblem(new ApiError(400, { errors: [{ ...problem, field: "sort" }] }), "x")).toBeUndefined();
  expect(readQueryProblem(new Error("offline"), "x")).toBeUndefined();
});

test("names and values are written in quotes where they need them", () => {
  expect(["1e-4", "wiki v2", 'a"b', "a,b", "训练"].map(quoteValue)).toEqual([
    "1e-4",
    '"wiki v2"',
    '"a\\"b"',
    '"a,b"',
    "训练",
  ]);
  expect(["param.lr", "param.my lr", "metric.val loss.best", "metric.a.b.last", "owner"].map(quoteField)).toEqual([
    "param.lr",
    'param."my lr"',
    'metric."val loss".best',
    "metric.a.b.last",
    "owner",
  ]);
});

test("the query of a group has its values, and the absence of a value", () => {
  expect(narrowQuery("", ["param.lr"], { "param.lr": 0.001 })).toBe("param.lr:0.001");
  expect(narrowQuery("a or b", ["owner", "param.x"], { owner: "ann", "param.x": null })).toBe(
    "(a or b) owner:ann -param.x:*",
  );
  expect(narrowQuery("x", ["gpuType"], { gpuType: "A100, H100" })).toBe("x gpuType:A100 gpuType:H100");
});

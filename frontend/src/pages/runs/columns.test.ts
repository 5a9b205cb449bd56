import i18next from "i18next";
import { expect, test } from "vitest";
import { withPageTexts } from "@/i18n";
import { describeColumns, getFirstOrder, normalizeColumn, splitCurve } from "./columns";
import { compareValues } from "./differences";
import { buildRun, COLUMNS } from "./fixtures";

await withPageTexts(Promise.resolve());
const describe = (names: string[], runs = [buildRun("a")]) => describeColumns(i18next.t, names, COLUMNS, runs);

test("the value of a curve is the end of its column's name, and the last one without an end", () => {
  expect(splitCurve("metric.val.loss.best")).toEqual({ base: "metric.val.loss", value: "best" });
  expect(splitCurve("metric.best")).toEqual({ base: "metric.best", value: "last" });
  expect(splitCurve("param.best")).toBeUndefined();
  expect(["metric.a", "metric.a.min", "status"].map(normalizeColumn)).toEqual([
    "metric.a.last",
    "metric.a.min",
    "status",
  ]);
});

test("columns are named in the reader's language, and parameters and curves as the script names them", () => {
  const labels = describe(["created", "param.lr", "metric.val_loss.best", "metric.val_loss.last", "param.status"]);
  expect(labels.map(({ label }) => label)).toEqual(["创建", "lr", "val_loss (最佳)", "val_loss", "status"]);
});

test("a parameter is shown as a number where most runs have one", () => {
  const runs = (...values: (number | string | null)[]) =>
    values.map((lr, at) => buildRun(String(at), { "param.lr": lr }));
  expect(describe(["param.lr"], runs(1, 2, "auto"))[0]?.kind).toBe("number");
  expect(describe(["param.lr"], runs(1, "auto", "none"))[0]?.kind).toBe("text");
  expect(describe(["param.lr"], runs(null))[0]?.kind).toBe("text");
});

test("a first press sorts the best, the newest or the largest to the top, and texts from A", () => {
  const orders = describe(["metric.val_loss.best", "created", "gpuHours", "owner", "tag"]).map(getFirstOrder);
  expect(orders).toEqual(["metric.val_loss.best", "-created", "-gpuHours", "owner", undefined]);
});

test("a difference is better or worse by the direction of its column, and neither without one", () => {
  expect(compareValues(3, 4, false)).toEqual({ delta: -1, share: -0.25, verdict: "better" });
  expect(compareValues(3, 4, true)).toEqual({ delta: -1, share: -0.25, verdict: "worse" });
  expect(compareValues(3, 4, null)).toEqual({ delta: -1, share: -0.25, verdict: undefined });
  expect(compareValues(4, 4, true)).toEqual({ delta: 0, share: 0, verdict: undefined });
  expect(compareValues(1, 0, true)).toEqual({ delta: 1, share: undefined, verdict: "better" });
  expect(compareValues(-3, -4, true)).toEqual({ delta: 1, share: 0.25, verdict: "better" });
  expect([compareValues(null, 4, true), compareValues(3, "x", true), compareValues(3, undefined, true)]).toEqual([
    undefined,
    undefined,
    undefined,
  ]);
});

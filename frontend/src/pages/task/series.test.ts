import { expect, test } from "vitest";
import { metric } from "@/test/fixtures";
import {
  alignSeries,
  buildSeries,
  findLossName,
  groupSources,
  isValidationLoss,
  listMetricNames,
  smoothPoints,
} from "./series";

test("several attempts are one line, and what a restart made void is kept apart", () => {
  const metrics = [
    metric(1, 10, 5),
    metric(2, 20, 4),
    metric(3, 30, 3),
    metric(4, 20, 3.9, { attempt: 2 }),
    metric(5, 30, 2.9, { attempt: 2 }),
    metric(6, 40, 2, { attempt: 2 }),
  ];
  const series = buildSeries(metrics, "loss");
  expect([...series.points]).toEqual([
    [10, 5],
    [20, 3.9],
    [30, 2.9],
    [40, 2],
  ]);
  expect([...series.discarded]).toEqual([
    [20, 4],
    [30, 3],
  ]);
  expect(series.restarts).toEqual([20]);
});

test("one rank's numbers make the line when several report", () => {
  const series = buildSeries([metric(1, 10, 5), metric(2, 10, 6, { rank: 1 })], "loss");
  expect([...series.points]).toEqual([[10, 5]]);
});

test("a metric that nobody reported is an empty line", () => {
  expect(buildSeries([metric(1, 10, 5)], "val_loss")).toEqual({
    points: new Map(),
    discarded: new Map(),
    restarts: [],
    notFinite: [],
  });
});

test("where a metric was not finite is known, and whether it still is", () => {
  const bad = (id: number, step: number, over = {}) => metric(id, step, 0, { values: { loss: null }, ...over });
  const metrics = [
    metric(1, 1, 5),
    bad(2, 2),
    bad(3, 3),
    metric(4, 4, 4),
    metric(5, 5, 3, { values: { lr: 1 } }),
    bad(6, 6),
  ];
  const series = buildSeries([...metrics, bad(7, 7, { rank: 1 })], "loss");
  expect([...series.points]).toEqual([
    [1, 5],
    [4, 4],
  ]);
  expect(series.notFinite).toEqual([
    { from: 2, to: 3, open: false },
    { from: 6, to: 6, open: true },
  ]);
  const resumed = [...metrics, metric(8, 5, 3.5, { attempt: 2 })];
  expect(buildSeries(resumed, "loss").notFinite, "a restart made it void").toEqual([{ from: 2, to: 3, open: false }]);
  expect(buildSeries([bad(1, 1)], "loss").notFinite).toEqual([{ from: 1, to: 1, open: true }]);
});

test("lines with different steps share one axis", () => {
  expect(
    alignSeries([
      new Map([
        [1, 5],
        [3, 4],
      ]),
      new Map([[2, 9]]),
    ]),
  ).toEqual([
    [1, 2, 3],
    [5, null, 4],
    [null, 9, null],
  ]);
  expect(alignSeries([new Map([[1, 5]])], [4, 1])).toEqual([
    [1, 4],
    [5, null],
  ]);
});

test("every metric that was reported can be chosen", () => {
  const metrics = [metric(1, 1, 5), metric(2, 2, 4, { values: { loss: 4, lr: 0.1 } })];
  expect(listMetricNames(metrics)).toEqual(["loss", "lr"]);
});

test("smoothing starts at the first value, follows the line and leaves its steps alone", () => {
  const jump = new Map([
    [1, 10],
    [2, 10],
    [3, 0],
  ]);
  const smoothed = [...smoothPoints(jump, 0.5)];
  expect(smoothed.map(([step]) => step)).toEqual([1, 2, 3]);
  expect(smoothed[1]?.[1]).toBeCloseTo(10);
  expect(smoothed[2]?.[1]).toBeCloseTo(10 * (3 / 7));
  expect([...smoothPoints(jump, 0)]).toEqual([...jump]);
});

test("sources that took over from one another are one curve, and those that differ are curves of their own", () => {
  const metrics = [
    metric(1, 10, 5, { source: "text" }),
    metric(2, 10, 5, { attempt: 2, source: "wandb" }),
    metric(3, 10, 4.9, { attempt: 2, source: "file" }),
    metric(4, 10, 4.8, { attempt: 2, source: "json" }),
  ];
  expect(groupSources(metrics, "loss")).toEqual([["wandb", "text"], ["json"], ["file"]]);
  expect([...buildSeries(metrics, "loss", ["wandb", "text"]).points]).toEqual([[10, 5]]);
  expect([...buildSeries(metrics, "loss", ["json"]).points]).toEqual([[10, 4.8]]);
  expect(groupSources(metrics, "lr")).toEqual([]);
});

test("the loss is found whatever a tracker calls it", () => {
  expect(findLossName(["lr", "train/loss", "loss"])).toBe("loss");
  expect(findLossName(["lr", "train/Loss"])).toBe("train/Loss");
  expect(findLossName(["loss_train"])).toBe("loss_train");
  expect(findLossName(["aux_loss", "lr"])).toBeUndefined();
  expect(["val_loss", "eval/loss", "Validation Loss", "loss"].filter(isValidationLoss)).toHaveLength(3);
});

import { expect, test } from "vitest";
import { formatView, parseView } from "./view";

const parse = (text: string) => parseView(new URLSearchParams(text));

test("an address holds the whole view", () => {
  const address =
    "tasks=task-1%2Ctask-2&metric=loss&metric=a%2Cb&axis=gpuHours&smooth=0.6&log=1&extremes=1&from=10&to=20.5" +
    "&hide=task-2&colors=task-1%3A3&group=lr&parameter=wd&statistic=min&embed=1";
  expect(formatView(parse(address)).toString()).toBe(address);
  expect(parse(address).metrics).toEqual(["loss", "a,b"]);
});

test("defaults are left out of the address", () => {
  expect(formatView(parse("tasks=task-1&axis=step&smooth=0&statistic=last")).toString()).toBe("tasks=task-1");
});

test("what an address says wrongly is the default", () => {
  const view = parse("tasks=a,,a,b&axis=epochs&smooth=7&from=x&colors=a:9,b:x,:1&statistic=mean&metric=");
  expect([view.tasks, view.axis, view.smoothing, view.from]).toEqual([["a", "b"], "step", 0.99, undefined]);
  expect([view.colors.size, view.statistic, view.metrics]).toEqual([0, "last", []]);
  expect(parse(`tasks=${Array.from({ length: 60 }, (_, at) => `t${at}`).join(",")}`).tasks).toHaveLength(50);
});

import { screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test, vi } from "vitest";
import { api, ok, platform } from "@/test/platform";
import { visit } from "@/test/render";

vi.mock("./chart", () => ({ Chart: () => null }));
vi.mock("@/ui/machines/time-chart", () => ({
  TimeChart: ({ label }: { label: string }) => <div role="img" aria-label={label} />,
}));

const series = (metric: string, rank: number, values: (number | null)[]) => ({
  ...{ metric, rank, values, unit: "%", index: String(rank), node: 0, most: null },
});

const machines = async (more: object) => {
  const times = { from: "2026-11-21T05:00:00Z", to: "2026-11-21T05:01:00Z", stepSeconds: 15 };
  platform.use(
    http.get(api("/training-tasks/:id/telemetry"), () =>
      ok({ ...times, emulated: false, marks: [], series: [], ...more }),
    ),
  );
  visit("/training/task-1");
  await userEvent.click(await screen.findByRole("tab", { name: "机器" }));
};

test("what was measured has a chart each, that says its newest values", async () => {
  await machines({ emulated: true, series: [series("gpu", 0, [10, 20, null]), series("gpu", 1, [10, 60, null])] });
  expect(await screen.findByRole("img", { name: "GPU 利用率: 20 % – 60 %，共 2 条" })).toBeTruthy();
  expect(screen.getByText(/模拟：/)).toBeTruthy();
});

test("nothing measured says why", async () => {
  await machines({});
  expect(await screen.findByText("没有测量数据")).toBeTruthy();
  expect(screen.getByText(/15 秒/)).toBeTruthy();
});

import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import { apiUrl, platformHandlers, respondWith } from "@/test/platform";
import { renderAt } from "@/test/render";

const run = (taskId: string, taskName: string, parameters: Record<string, string>) => ({
  ...{ taskId, taskName, parameters, status: "succeeded", framework: "pytorch-ddp" },
  ...{ createdAt: "2026-11-01T00:00:00Z", startedAt: "2026-11-01T00:00:00Z", endedAt: "2026-11-01T01:00:00Z" },
});

const curve = (taskId: string, last: number) => ({
  ...{ taskId, metric: "loss", source: "json", x: [0, 10], y: [3, last], low: null, high: null, count: 2 },
  ...{ smoothed: null, last, lastStep: 10, restarts: [], notFinite: 0, complete: true },
});

function compare(answer: Record<string, unknown> = {}): URLSearchParams[] {
  const requests: URLSearchParams[] = [];
  platformHandlers.use(
    http.get(apiUrl("/runs/comparison"), () =>
      respondWith({
        complete: true,
        runs: [run("task-1", "short", { lr: "0.1" }), run("task-2", "long", { lr: "0.2" })],
        metrics: [
          { name: "loss", runs: 2 },
          { name: "acc", runs: 1 },
        ],
        parameters: [{ name: "lr", differs: true }],
        media: [],
        machine: ["machine.gpu"],
      }),
    ),
    http.get(apiUrl("/runs/series"), ({ request }) => {
      requests.push(new URL(request.url).searchParams);
      return respondWith({
        ...{ axis: "step", from: 0, to: 10, points: 500, complete: true, bands: [], absent: [] },
        series: [curve("task-1", 1.25), curve("task-2", 0.5)],
        ...answer,
      });
    }),
  );
  return requests;
}

test("curves of the runs of the address are drawn, with the loss first", async () => {
  const requests = compare();
  renderAt("/compare?tasks=task-1,task-2");
  expect(await screen.findByRole("img", { name: "loss：2 条曲线" })).toBeTruthy();
  expect(requests[0]?.getAll("task")).toEqual(["task-1", "task-2"]);
  expect(requests[0]?.getAll("metric")).toEqual(["loss"]);
  const table = screen.getByRole("group", { name: "2 次运行" });
  expect(within(table).getByText("0.5")).toBeTruthy();
  expect(within(table).getByText("0.2")).toBeTruthy();
});

test("what is chosen is in the address, and requested", async () => {
  const requests = compare();
  const { address } = renderAt("/compare?tasks=task-1,task-2");
  await userEvent.click(await screen.findByRole("button", { name: "acc" }));
  await userEvent.selectOptions(screen.getByRole("combobox", { name: "横轴" }), "token 数");
  await userEvent.selectOptions(screen.getByRole("combobox", { name: "分组显示" }), "lr");
  await userEvent.click(screen.getByRole("button", { name: "隐藏 long" }));
  await userEvent.click(screen.getByRole("button", { name: "更换 short 的颜色" }));
  expect(address()).toBe(
    "/compare?tasks=task-1%2Ctask-2&metric=loss&metric=acc&axis=tokens&hide=task-2&colors=task-1%3A1&group=lr",
  );
  await waitFor(() => expect(requests.at(-1)?.get("groupBy")).toBe("lr"));
  expect(requests.at(-1)?.getAll("metric")).toEqual(["loss", "acc"]);
  expect(requests.at(-1)?.get("axis")).toBe("tokens");
});

test("a hidden run has no curve, and a removed one leaves the address", async () => {
  compare();
  const { address } = renderAt("/compare?tasks=task-1,task-2&hide=task-2");
  expect(await screen.findByRole("img", { name: "loss：1 条曲线" })).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "从对比中移除 short" }));
  expect(address()).toBe("/compare?tasks=task-2&hide=task-2");
});

test("missing curves are named with their reason", async () => {
  const absent = [
    { taskId: "task-1", metric: "", code: "SERIES_WITHOUT_TOKENS", message: "无法得知。", hint: "请记录。" },
  ];
  compare({ absent, series: [] });
  renderAt("/compare?tasks=task-1,task-2");
  await userEvent.click(await screen.findByText("缺少 1 条曲线"));
  expect(screen.getByText("无法得知。 请记录。")).toBeTruthy();
  expect(screen.getByText("当前显示的运行在此范围内没有这条曲线。")).toBeTruthy();
});

test("an embedded comparison has no frame", async () => {
  compare();
  renderAt("/compare?tasks=task-1,task-2&embed=1");
  await screen.findByRole("img", { name: "loss：2 条曲线" });
  expect(screen.queryByRole("navigation")).toBeNull();
});

test("without runs the page says where to choose them", async () => {
  renderAt("/compare");
  expect(await screen.findByText("没有要对比的运行")).toBeTruthy();
});

import { screen, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { Sweep, SweepTrial } from "@/api/types";
import { apiUrl, platformHandlers, respondWith, respondWithList } from "@/test/platform";
import { renderAt } from "@/test/render";

const trial: SweepTrial = {
  number: 0,
  status: "complete",
  taskId: "task-1",
  taskStatus: "succeeded",
  parameters: { lr: 0.001, optimizer: "adam" },
  chosenBy: "random",
  value: 2.5,
  valueStep: 90,
  step: 90,
  rung: 0,
  marks: [],
  why: null,
  gpuHours: 0.5,
  cost: null,
  createdAt: "2026-11-21T05:00:00Z",
  startedAt: "2026-11-21T05:00:10Z",
  endedAt: "2026-11-21T05:10:00Z",
};
const paused: SweepTrial = {
  ...trial,
  number: 1,
  status: "paused",
  taskId: "task-2",
  parameters: { lr: 0.1, optimizer: "sgd" },
  value: 4,
  why: { code: "TRIAL_BELOW_RUNG", message: "在第 30 步暂停", hint: "" },
};
const sweep: Sweep = {
  id: "sweep-1",
  name: "rates",
  projectId: "project-1",
  projectName: "默认",
  owner: "ada",
  status: "running",
  reason: null,
  method: "tpe",
  metric: "val_loss",
  goal: "minimize",
  trials: { total: 2, running: 0, paused: 1, complete: 1, pruned: 0, failed: 0, stopped: 0 },
  best: 0,
  bestValue: 2.5,
  gpuHours: 0.5,
  cost: null,
  createdAt: "2026-11-21T05:00:00Z",
  endedAt: null,
  allowedActions: ["pause", "stop", "cloneBest"],
  spec: {},
  bestTrial: trial,
  warnings: [],
};

function serve(found: Sweep = sweep) {
  platformHandlers.use(
    http.get(apiUrl("/sweeps"), () => respondWithList(found)),
    http.get(apiUrl("/sweeps/sweep-1"), () => respondWith(found)),
    http.get(apiUrl("/sweeps/sweep-1/trials"), () => respondWithList(trial, paused)),
  );
}

test("the list leads to each sweep with its state and its best objective", async () => {
  serve();
  renderAt("/sweeps");
  const table = await screen.findByRole("table");
  expect(within(table).getByRole("link", { name: "rates" }).getAttribute("href")).toBe("/sweeps/sweep-1");
  expect(within(table).getByText("运行中")).toBeTruthy();
  expect(within(table).getByText("2.5")).toBeTruthy();
});

test("a sweep shows its history, its parameters, and why each trial is where it is", async () => {
  serve();
  renderAt("/sweeps/sweep-1");
  expect(await screen.findByRole("img", { name: /每次试验的目标值/ })).toBeTruthy();
  const lines = screen.getByRole("img", { name: /每条线是一次试验/ });
  expect(lines.querySelectorAll("polyline")).toHaveLength(2);
  const table = screen.getByRole("group", { name: "试验" });
  expect(within(table).getByText("在第 30 步暂停")).toBeTruthy();
  expect(
    within(table)
      .getAllByRole("link")
      .map((link) => link.getAttribute("href")),
  ).toEqual(["/training/task-1", "/training/task-2"]);
});

test("a sweep whose script seems not to read its parameters says so", async () => {
  const message = "已完成的 3 次试验参数不同，目标值却都是 2.5。";
  serve({
    ...sweep,
    warnings: [{ code: "SWEEP_VALUES_EQUAL", field: "", message, hint: "脚本可能没有读取搜索参数。" }],
  });
  renderAt("/sweeps/sweep-1");
  expect(await screen.findByText(message)).toBeTruthy();
});

test("a sweep is paused", async () => {
  serve();
  let asked = 0;
  platformHandlers.use(
    http.post(apiUrl("/sweeps/sweep-1/pause"), () => {
      asked += 1;
      return respondWith({ ...sweep, status: "paused" });
    }),
  );
  renderAt("/sweeps/sweep-1");
  await userEvent.click(await screen.findByRole("button", { name: "暂停" }));
  expect(asked).toBe(1);
});

test("a viewer is offered no action", async () => {
  serve({ ...sweep, allowedActions: [] });
  renderAt("/sweeps/sweep-1");
  await screen.findByRole("img", { name: /每次试验的目标值/ });
  expect(screen.queryByRole("button", { name: /暂停|停止|再次运行/ })).toBeNull();
});

test("the best trial is run again with more steps", async () => {
  serve();
  const bodies: unknown[] = [];
  platformHandlers.use(
    http.post(apiUrl("/sweeps/sweep-1/clone-best"), async ({ request }) => {
      bodies.push(await request.json());
      return respondWith({ taskId: "task-9" });
    }),
  );
  renderAt("/sweeps/sweep-1");
  await userEvent.click(await screen.findByRole("button", { name: "再次运行最佳试验" }));
  const dialog = screen.getByRole("dialog");
  await userEvent.type(within(dialog).getByLabelText("步数"), "900");
  await userEvent.click(within(dialog).getByRole("button", { name: "再次运行最佳试验" }));
  await screen.findByText("已创建任务 task-9");
  expect(bodies).toEqual([{ resume: true, hyperparameters: { totalSteps: 900 } }]);
});

test("the best trial of a script is run again with further arguments, from the start", async () => {
  serve({ ...sweep, spec: { request: { entrypoint: { script: "train.py" } } } });
  const bodies: unknown[] = [];
  platformHandlers.use(
    http.post(apiUrl("/sweeps/sweep-1/clone-best"), async ({ request }) => {
      bodies.push(await request.json());
      return respondWith({ taskId: "task-9" });
    }),
  );
  renderAt("/sweeps/sweep-1");
  await userEvent.click(await screen.findByRole("button", { name: "再次运行最佳试验" }));
  const dialog = screen.getByRole("dialog");
  expect(within(dialog).queryByLabelText("步数")).toBeNull();
  await userEvent.type(
    within(dialog).getByLabelText("脚本的附加参数"),
    "--max_iters=400{Enter}{Enter}--note=two words",
  );
  await userEvent.click(within(dialog).getByRole("checkbox", { name: "从头开始，不从检查点继续" }));
  await userEvent.click(within(dialog).getByRole("button", { name: "再次运行最佳试验" }));
  await screen.findByText("已创建任务 task-9");
  expect(bodies).toEqual([{ resume: false, args: ["--max_iters=400", "--note=two words"] }]);
});

import { screen, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { beforeEach, expect, test } from "vitest";
import { apiUrl, platformHandlers, respondWith, respondWithError, respondWithList } from "@/test/platform";
import { task } from "@/test/fixtures";
import { renderAt } from "@/test/render";

const request = {
  taskName: "base",
  environmentIds: ["env-1"],
  datasetId: null,
  datasetVersionId: null,
  entrypoint: { script: "train.py", args: ["--lr", "0.001", "--layers", "4"] },
  priority: "high",
};
const curve = { kind: "number", label: "", choices: [], group: "metric", sortable: true };
type Body = Record<string, unknown> & { request?: { entrypoint?: { args?: string[] } } };

/** What was previewed and created. */
let previewed: Body[];
let created: Body[];

const preview = (body: Body) => ({
  problems: Object.keys(body.parameters ?? {}).length
    ? []
    : [{ field: "parameters", error: "SWEEP_PARAMETERS_REQUIRED", message: "没有参数", hint: "" }],
  warnings: [],
  count: 20,
  parameters: [{ lr: 0.002 }, { lr: 0.0004 }],
  commands: ["train.py --lr 0.002", "train.py --lr 0.0004"],
  request: null,
});

beforeEach(() => {
  previewed = [];
  created = [];
  platformHandlers.use(
    http.post(apiUrl("/training-tasks/:id/clone"), () => respondWith({ request })),
    http.get(apiUrl("/runs/comparison"), () =>
      respondWith({ complete: true, runs: [], metrics: [{ name: "val_acc" }], parameters: [], media: [], machine: [] }),
    ),
    http.get(apiUrl("/runs/columns"), () =>
      respondWithList(
        { ...curve, name: "metric.val_acc.last", higherIsBetter: true },
        { ...curve, name: "metric.val_loss.last", higherIsBetter: false },
      ),
    ),
    http.post(apiUrl("/sweeps/preview"), async ({ request }) => {
      const body = (await request.json()) as Body;
      previewed.push(body);
      return respondWith(preview(body));
    }),
    http.post(apiUrl("/sweeps"), async ({ request }) => {
      created.push((await request.json()) as Body);
      return respondWith({ id: "sweep-1", name: "base" }, 201);
    }),
    http.get(apiUrl("/sweeps/sweep-1"), () => respondWithError(404, "NOT_FOUND", "没有")),
  );
});

test("a task's parameter is varied, and its trials are preemptible and use what is left", async () => {
  renderAt("/sweeps/new?from=task-1");
  await userEvent.click(await screen.findByRole("button", { name: "搜索 lr = 0.001" }));
  expect(screen.getByLabelText("从").getAttribute("value")).toBe("0.0001");
  await userEvent.type(screen.getByLabelText("指标"), "val_acc");
  const goal = screen.getByLabelText<HTMLSelectElement>("方向");
  await screen.findByText("这是该指标的惯例。");
  expect(goal.value).toBe("maximize");
  const trials = await screen.findByRole("list", { name: "最先的几次试验" });
  expect(within(trials).getByText("train.py --lr 0.002")).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "开始参数搜索" }));
  await screen.findByText(/已开始/);
  expect(created).toHaveLength(1);
  expect(created[0]).toMatchObject({
    name: task.taskName,
    objective: { metric: "val_acc", goal: "maximize", value: "best" },
    parameters: { lr: { min: 0.0001, max: 0.01, scale: "log" } },
    request: { priority: "low", preemptible: true },
  });
  expect(created[0]?.request?.entrypoint?.args).toEqual(["--lr", "{lr}", "--layers", "4"]);
});

test("what is wrong is shown at its field once the form was tried", async () => {
  platformHandlers.use(
    http.post(apiUrl("/sweeps"), () =>
      respondWithError(400, "INVALID", "有误", [
        { field: "parameters.lr.max", error: "SWEEP_RANGE_EMPTY", message: "范围为空", hint: "" },
        { field: "request.environmentIds.0", error: "ENVIRONMENT_UNKNOWN", message: "没有这个环境", hint: "" },
      ]),
    ),
  );
  renderAt("/sweeps/new?from=task-1");
  await userEvent.click(await screen.findByRole("button", { name: "搜索 lr = 0.001" }));
  await userEvent.click(screen.getByRole("button", { name: "开始参数搜索" }));
  const field = screen.getByLabelText("到");
  await within(field.parentElement as HTMLElement).findByText("范围为空");
  expect(document.activeElement).toBe(field);
  expect(screen.getAllByText("没有这个环境").length).toBeGreaterThan(0);
});

test("a pasted file fills in the form", async () => {
  platformHandlers.use(
    http.post(apiUrl("/sweeps/read-file"), async ({ request }) => {
      const { text } = (await request.json()) as { text: string };
      if (text !== "method: bayes") return respondWithError(400, "YAML_UNREADABLE", "第 1 行不是 YAML");
      return respondWith({
        sweep: {
          name: "rates",
          method: "tpe",
          parameters: { wd: { values: [0, 0.1] } },
          objective: { metric: "loss" },
        },
        problems: [],
      });
    }),
  );
  renderAt("/sweeps/new");
  await userEvent.click(await screen.findByText("用搜索文件填写"));
  const box = screen.getByLabelText("搜索文件");
  await userEvent.type(box, "x");
  await userEvent.click(screen.getByRole("button", { name: "读取文件" }));
  await screen.findByText("第 1 行不是 YAML");
  await userEvent.clear(box);
  await userEvent.type(box, "method: bayes");
  await userEvent.click(screen.getByRole("button", { name: "读取文件" }));
  await screen.findByText("已填入表单。");
  expect(screen.getByLabelText("可选的值").getAttribute("value")).toBe("0, 0.1");
  expect(screen.getByLabelText("参数搜索的名称").getAttribute("value")).toBe("rates");
});

test("without a task, one is chosen from those of before", async () => {
  renderAt("/sweeps/new");
  await userEvent.click(await screen.findByRole("button", { name: new RegExp(task.taskId) }));
  await screen.findByRole("button", { name: "搜索 layers = 4" });
  expect(screen.getByText("train.py --lr 0.001 --layers 4")).toBeTruthy();
});

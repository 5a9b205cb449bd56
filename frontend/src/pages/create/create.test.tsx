import { cleanup, screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { beforeEach, expect, test } from "vitest";
import type { CreateRequest } from "@/api/types";
import { codeSource, environment, framework, task } from "@/test/fixtures";
import { apiUrl, respondWithList, respondWith, platformHandlers, respondWithError } from "@/test/platform";
import { renderAt } from "@/test/render";

interface Body {
  taskName: string;
  environmentIds?: string[];
  distributedConfig?: { nodeIds: string[]; masterNode: string };
}

const nameless = { field: "taskName", error: "NAME_REQUIRED", message: "请输入任务名称", hint: "" };

const nothingToShow = {
  worldSize: 0,
  nodeCount: 0,
  masterNode: null,
  environments: [],
  ranks: [],
  files: [],
  artifacts: [],
  command: [],
  problems: [],
  warnings: [],
  inUse: [],
  summary: null,
};

beforeEach(() => {
  platformHandlers.use(
    http.post(apiUrl("/training-tasks/preview"), async ({ request }) => {
      const body = (await request.json()) as Body;
      const ids = body.distributedConfig?.nodeIds ?? body.environmentIds ?? [];
      return respondWith({
        ...nothingToShow,
        problems: body.taskName ? [] : [nameless],
        warnings: ids.length > 1 ? [{ code: "ENVIRONMENTS_BUSY", message: "正被占用", hint: "" }] : [],
      });
    }),
  );
});

const card = (id: string) => screen.findByRole("checkbox", { name: new RegExp(`name-of-${id}`) });

test("the second environment brings the distributed panel, the master's badge and the server's warnings", async () => {
  renderAt("/training/create");
  await userEvent.click(await card("env-1"));
  expect(screen.getByText("单机训练")).toBeTruthy();
  expect(screen.queryByLabelText("分布式框架")).toBeNull();
  await userEvent.click(await card("env-2"));
  expect(screen.getByText("分布式训练")).toBeTruthy();
  expect(screen.getByText("分布式训练 · 使用 PyTorch DDP")).toBeTruthy();
  expect(screen.getByText("已选 2")).toBeTruthy();
  expect(screen.getByLabelText<HTMLSelectElement>("主节点").value).toBe("env-1");
  expect(within((await card("env-1")).closest("label") as HTMLElement).getByText("主节点")).toBeTruthy();
  await screen.findByText("正被占用");
  await userEvent.click(await card("env-1"));
  expect(screen.queryByLabelText("主节点")).toBeNull();
});

test("an environment that cannot be chosen says why", async () => {
  const stopped = environment("env-4", {
    selectable: false,
    status: "stopped",
    notSelectableReason: { code: "ENVIRONMENT_NOT_RUNNING", message: "环境没有在运行" },
  });
  platformHandlers.use(http.get(apiUrl("/dev-environments"), () => respondWithList(stopped)));
  renderAt("/training/create");
  const box = await card("env-4");
  expect(box.getAttribute("aria-disabled")).toBe("true");
  const facts = document.getElementById(box.getAttribute("aria-describedby") ?? "");
  expect(facts?.textContent).toContain("环境没有在运行");
  await userEvent.click(box);
  expect(box).toHaveProperty("checked", false);
  expect(screen.getByText("已选 0")).toBeTruthy();
});

test.each([
  ["nothing", {}, true],
  ["a refusal", { problems: [{ field: "environmentIds", error: "LIMIT", message: "超过限额", hint: "" }] }, false],
  [
    "a process of somebody else",
    { inUse: [{ environmentId: "env-1", environment: "one", processes: [], gpus: [] }] },
    false,
  ],
  ["who holds it", { warnings: [{ code: "ENVIRONMENTS_IN_USE", message: "正被占用", hint: "" }] }, false],
])("a quick start is promised only while nothing is in its way: %s", async (_, answer, promised) => {
  const query = listening({ ...answer, hourly: { amount: 7, currency: "CNY" } });
  renderAt("/training/create?environments=env-1");
  await waitFor(() => expect(query.body?.environmentIds ?? query.body?.distributedConfig?.nodeIds).toEqual(["env-1"]));
  await screen.findByText("每小时费用");
  await waitFor(() => expect(screen.queryByText(/预计 10 秒内/) !== null).toBe(promised));
});

test("a field's problem is shown on it after a try, not before", async () => {
  platformHandlers.use(
    http.post(apiUrl("/training-tasks"), () => respondWithError(400, "INVALID_REQUEST", "请求有误", [nameless])),
  );
  renderAt("/training/create");
  await userEvent.click(await card("env-1"));
  await screen.findByText("还需完成 1 项");
  expect(screen.getByText("请输入任务名称")).toBeTruthy();
  const name = screen.getByLabelText("任务名称");
  expect(name.getAttribute("aria-invalid")).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "创建并启动训练" }));
  await waitFor(() => expect(name.getAttribute("aria-invalid")).toBe("true"));
  const described = document.getElementById(name.getAttribute("aria-describedby") ?? "");
  expect(described?.textContent).toContain("请输入任务名称");
  expect(document.activeElement).toBe(name);
});

test("a created task is opened, and the same request sent twice goes under one key", async () => {
  const keys: (string | null)[] = [];
  let sent: Body | undefined;
  platformHandlers.use(
    http.post(apiUrl("/training-tasks"), async ({ request }) => {
      keys.push(request.headers.get("idempotency-key"));
      sent = (await request.json()) as Body;
      return keys.length === 1
        ? respondWithError(503, "UNAVAILABLE", "稍后再试")
        : respondWith({ taskId: task.taskId, status: "initializing", distributedInfo: {}, warnings: [] }, 201);
    }),
  );
  const page = renderAt("/training/create");
  await userEvent.type(await screen.findByLabelText("任务名称"), "gpt");
  await userEvent.click(await card("env-1"));
  await userEvent.click(screen.getByRole("button", { name: "创建并启动训练" }));
  await screen.findByText("稍后再试");
  await userEvent.click(screen.getByRole("button", { name: "创建并启动训练" }));
  await screen.findByText("使用环境: name-of-env-1"); // first, as it does not stay
  await screen.findByRole("heading", { name: /first-task/ });
  expect(page.address()).toBe("/training/task-1");
  expect(sent).toMatchObject({ taskName: "gpt", environmentIds: ["env-1"], datasetVersionId: "version-1" });
  expect(keys[0]).toMatch(/^[0-9a-f]{32}$/);
  expect(keys[1]).toBe(keys[0]);
});

test("what was typed and ticked stays when the language changes", async () => {
  renderAt("/training/create");
  await userEvent.type(await screen.findByLabelText("任务名称"), "gpt");
  await userEvent.click(await card("env-1"));
  await userEvent.click(screen.getByRole("button", { name: "Switch to English" }));
  expect(await screen.findByLabelText("Task name")).toHaveProperty("value", "gpt");
  expect(await card("env-1")).toHaveProperty("checked", true);
});

test("a clone starts from the other task's request", async () => {
  const request = {
    taskName: "again",
    datasetId: "dataset-1",
    datasetVersionId: "version-1",
    modelId: "model-1",
    launchMode: "existing",
    distributedConfig: { enabled: true, nodeIds: ["env-1", "env-2"], masterNode: "env-2", framework: "ddp" },
  };
  platformHandlers.use(http.post(apiUrl("/training-tasks/task-1/clone"), () => respondWith({ request })));
  renderAt("/training/create?from=task-1");
  expect(await screen.findByLabelText("任务名称")).toHaveProperty("value", "again");
  await waitFor(() => expect(screen.getByLabelText<HTMLSelectElement>("主节点").value).toBe("env-2"));
  await waitFor(() => expect(screen.getByLabelText<HTMLSelectElement>("分布式框架").value).toBe("pytorch-ddp"));
});

test.each([
  [true, { environment: "master", path: "mine" }],
  [false, { snapshot: "8c1c8c1c", environment: "master", path: "mine" }],
])("a clone of code that has changed since (%s) asks for it as it is now", async (changed, code) => {
  const asked = listening();
  const request = {
    taskName: "again",
    environmentIds: ["env-1"],
    entrypoint: { script: "train.py" },
    code: { snapshot: "8c1c8c1c", environment: "master", path: "mine" },
    distributedConfig: { nodeIds: ["env-1"], masterNode: "env-1", worldSize: 1 },
  };
  platformHandlers.use(
    http.post(apiUrl("/training-tasks/task-1/clone"), () => respondWith({ request })),
    http.get(apiUrl("/training-tasks/task-1/code/source"), () =>
      respondWith(codeSource({ kind: "environment", changed })),
    ),
  );
  renderAt("/training/create?from=task-1");
  await waitFor(() => expect(asked.body?.code).toEqual(code));
  expect(asked.body?.distributedConfig).toMatchObject({ worldSize: 1 });
  expect(screen.getByText("distributedConfig.worldSize: 1")).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "移除 distributedConfig.worldSize" }));
  await waitFor(() => expect(asked.body).not.toHaveProperty("distributedConfig.worldSize"));
});

const deepspeed = {
  ...framework,
  value: "deepspeed",
  aliases: [],
  label: "DeepSpeed",
  description: "微软分布式训练",
  parallelism: ["data", "sharded", "tensor", "pipeline"],
  options: {
    properties: {
      zeroStage: { type: "integer", minimum: 0, maximum: 3, default: 2, title: "ZeRO 阶段" },
      offloadOptimizer: {
        enum: ["cpu", "none"],
        default: "cpu",
        title: "优化器卸载",
        enumTitles: { none: "不卸载" },
      },
      compiledKernels: { type: "boolean", default: false },
    },
  },
};

/** What the last preview was asked with. */
function listening(answer: object = {}): { body?: CreateRequest } {
  const asked: { body?: CreateRequest } = {};
  platformHandlers.use(
    http.get(apiUrl("/frameworks"), () => respondWithList(framework, deepspeed)),
    http.post(apiUrl("/training-tasks/preview"), async ({ request }) => {
      asked.body = (await request.json()) as CreateRequest;
      return respondWith({ ...nothingToShow, ...answer });
    }),
  );
  return asked;
}

const pair = "/training/create?environments=env-1,env-2";

test("a framework brings its own fields, drawn from its schema, and what they hold is asked about", async () => {
  const asked = listening({
    proposal: { strategy: { dataParallel: 4 }, options: { zeroStage: 3 }, reasons: [] },
    batch: {
      ...{ perRank: 8, dataParallel: 4, accumulation: 2, effective: 64 },
      ...{ learningRate: 0.001, learningRateScaling: "linear", scaledLearningRate: 0.004, ownScript: false },
    },
  });
  renderAt(pair);
  await userEvent.selectOptions(
    await screen.findByLabelText("分布式框架"),
    await screen.findByRole("option", { name: "DeepSpeed" }),
  );
  expect(screen.getByText("微软分布式训练")).toBeTruthy();
  const stage = screen.getByLabelText("ZeRO 阶段");
  await waitFor(() => expect(stage.getAttribute("placeholder")).toBe("自动（3）"));
  expect(screen.getByLabelText("数据并行").getAttribute("placeholder")).toBe("自动（4）");
  expect(screen.getByText("64 = 8 × 4 × 2")).toBeTruthy();
  expect(screen.getByText("0.004 (0.001, linear)")).toBeTruthy();
  await userEvent.type(stage, "1");
  await userEvent.selectOptions(screen.getByLabelText("优化器卸载"), "不卸载");
  await userEvent.selectOptions(screen.getByLabelText("compiledKernels"), "开");
  await userEvent.type(screen.getByLabelText("数据并行"), "2");
  await waitFor(() =>
    expect(asked.body?.distributedConfig).toMatchObject({
      framework: "deepspeed",
      strategy: { dataParallel: 2 },
      options: { zeroStage: 1, offloadOptimizer: "none", compiledKernels: true },
    }),
  );
  await userEvent.selectOptions(screen.getByLabelText("分布式框架"), "PyTorch DDP");
  expect(screen.queryByLabelText("ZeRO 阶段")).toBeNull();
});

test("a split that can run is filled in with one click", async () => {
  const asked = listening({ splits: [{ tensorParallel: 2, pipelineParallel: 1, dataParallel: 7 }] });
  renderAt(pair);
  await userEvent.selectOptions(
    await screen.findByLabelText("分布式框架"),
    await screen.findByRole("option", { name: "DeepSpeed" }),
  );
  await userEvent.type(screen.getByLabelText("张量并行"), "8");
  await userEvent.click(await screen.findByRole("button", { name: "张量并行 2 × 流水线并行 1 × 数据并行 7" }));
  await waitFor(() =>
    expect(asked.body?.distributedConfig?.strategy).toEqual({
      tensorParallel: 2,
      pipelineParallel: 1,
      dataParallel: 7,
    }),
  );
});

test("a recommendation is taken with its strategy and options; without any, nothing is offered", async () => {
  const asked = listening();
  const sizes: unknown[] = [];
  platformHandlers.use(
    http.post(apiUrl("/frameworks/recommend"), async ({ request }) => {
      sizes.push(((await request.json()) as { modelParameters?: number }).modelParameters);
      const reasons = [{ code: "RECOMMENDED_BY_SIZE", message: "70B 的模型", hint: "" }];
      return respondWith({
        modelParameters: 70e9,
        rejected: [],
        scenes: [],
        items: [{ framework: "deepspeed", label: "DeepSpeed", strategy: {}, options: { zeroStage: 3 }, reasons }],
      });
    }),
  );
  renderAt(pair);
  await screen.findByText("推荐 DeepSpeed");
  await userEvent.type(screen.getByLabelText("模型参数量"), "70B");
  await waitFor(() => expect(sizes.at(-1)).toBe(70e9));
  await userEvent.click(screen.getByRole("button", { name: "采用" }));
  await waitFor(() =>
    expect(asked.body?.distributedConfig).toMatchObject({
      framework: "deepspeed",
      options: { zeroStage: 3 },
    }),
  );
  expect(screen.getByText("当前")).toBeTruthy();
});

test("a platform without recommendations offers none", async () => {
  listening();
  renderAt(pair);
  await screen.findByLabelText("分布式框架");
  await screen.findByText("可以提交");
  expect(screen.queryByLabelText("模型参数量")).toBeNull();
});

test("five hundred ranks are there to be looked at, few of them in the page", async () => {
  const ranks = Array.from({ length: 512 }, (_, rank) => ({
    rank,
    localRank: rank % 2,
    nodeRank: rank >> 1,
    environmentId: "env-1",
    environmentName: "name-of-env-1",
    device: null,
    env: { RANK: String(rank) },
  }));
  listening({ ranks, worldSize: 512 });
  renderAt(pair);
  const table = await screen.findByRole("table", { name: "Rank 分配" });
  expect(table.getAttribute("aria-rowcount")).toBe("513");
  expect(within(table).getAllByRole("row").length).toBeLessThan(80);
  expect(within(table).getAllByText("A100 #1").length).toBeGreaterThan(0);
  await userEvent.click(screen.getByRole("button", { name: "rank 3 的环境变量" }));
  expect(screen.getByLabelText("rank-3.env").textContent).toBe("RANK=3");
});

test("spare environments are ticked among those that could take a place", async () => {
  const asked = listening();
  platformHandlers.use(
    http.get(apiUrl("/dev-environments"), () =>
      respondWithList(
        ...["env-1", "env-2", "env-3"].map((id) => environment(id)),
        environment("env-9", { clusterId: "another", name: "elsewhere" }),
      ),
    ),
  );
  renderAt(pair);
  const spares = await screen.findByRole("group", { name: "备用环境", hidden: true });
  await userEvent.click(within(spares).getByRole("button", { name: "选择备用环境", hidden: true }));
  const box = await within(spares).findByRole("checkbox", { name: /name-of-env-3/, hidden: true });
  expect(within(spares).getAllByRole("checkbox", { hidden: true })).toHaveLength(1);
  await userEvent.click(box);
  await waitFor(() => expect(asked.body?.spareEnvironmentIds).toEqual(["env-3"]));
  await userEvent.click(within(spares).getByRole("checkbox", { name: /name-of-env-3/, hidden: true }));
  await waitFor(() => expect(asked.body).not.toHaveProperty("spareEnvironmentIds"));
});

test("a script of one's own is asked for without dataset and model", async () => {
  const asked = listening();
  renderAt(pair);
  expect(screen.queryByLabelText("训练脚本")).toBeNull();
  await userEvent.click(await screen.findByRole("radio", { name: "我的脚本" }));
  await userEvent.type(await screen.findByLabelText("训练脚本"), "train.py");
  const own = { datasetId: null, datasetVersionId: null, modelId: null, entrypoint: { script: "train.py", args: [] } };
  await waitFor(() => expect(asked.body).toMatchObject(own));
  await userEvent.click(screen.getByRole("radio", { name: "平台的模型" }));
  await waitFor(() => expect(asked.body).toMatchObject({ datasetId: "dataset-1", modelId: "model-1" }));
  expect(asked.body).not.toHaveProperty("entrypoint");
});

test("a problem leads to its field, also where that is folded away", async () => {
  const field = "hyperparameters.batchSize";
  listening({ problems: [{ field, error: "HYPERPARAMETER_INVALID", message: "批大小无效", hint: "" }] });
  renderAt(pair);
  await userEvent.click(await screen.findByRole("button", { name: "去修改" }));
  const input = screen.getByLabelText("每进程批次大小");
  expect(document.activeElement).toBe(input);
  expect(input.closest("details")?.open).toBe(true);
});

test("a problem opens the tab that its field is in, and the tab counts it", async () => {
  const field = "maxRestarts";
  listening({ problems: [{ field, error: "MAX_RESTARTS_OUT_OF_RANGE", message: "超出范围", hint: "" }] });
  renderAt(pair);
  await userEvent.click(await screen.findByRole("button", { name: "去修改" }));
  expect(document.activeElement).toBe(screen.getByLabelText("自动重启上限"));
  expect(screen.getByRole("tab", { name: /故障与恢复/ }).getAttribute("aria-selected")).toBe("true");
  await userEvent.click(screen.getByRole("button", { name: "创建并启动训练" }));
  expect(await screen.findByRole("tab", { name: /故障与恢复 ?1/ })).toBeTruthy();
});

test("what was left unsent is there again after a reload, until one starts over", async () => {
  renderAt("/training/create");
  await userEvent.type(await screen.findByLabelText("任务名称"), "gpt");
  await userEvent.click(await card("env-2"));
  cleanup();
  renderAt("/training/create");
  expect(await screen.findByLabelText("任务名称")).toHaveProperty("value", "gpt");
  expect(await card("env-2")).toHaveProperty("checked", true);
  await userEvent.click(screen.getByRole("button", { name: "重新开始" }));
  expect(await screen.findByLabelText("任务名称")).toHaveProperty("value", "");
  expect(await card("env-2")).toHaveProperty("checked", false);
});

test("a retry starts from the newest checkpoint, and an environment that is gone can be taken out", async () => {
  const request = {
    taskName: "again",
    datasetId: "dataset-1",
    datasetVersionId: "version-1",
    modelId: "model-1",
  };
  const at = (step: number) => ({
    attempt: 1,
    step,
    path: `at/${step}`,
    sizeBytes: 1,
    valLoss: null,
    at: "",
  });
  platformHandlers.use(
    http.post(apiUrl("/training-tasks/task-1/clone"), () =>
      respondWith({ request: { ...request, environmentIds: ["env-gone"] } }),
    ),
    http.get(apiUrl("/training-tasks/task-1/checkpoints"), () => respondWithList(at(50), at(100))),
  );
  renderAt("/training/create?retry=task-1");
  expect(await screen.findByLabelText("从检查点继续")).toHaveProperty("value", "at/100");
  await screen.findByText("已不存在");
  await userEvent.click(screen.getByRole("button", { name: "取消选择 env-gone" }));
  expect(screen.getByText("已选 0")).toBeTruthy();
});

test("the arrows go from card to card, and the space bar ticks", async () => {
  renderAt("/training/create");
  (await card("env-1")).focus();
  await userEvent.keyboard("{ArrowDown}");
  expect(document.activeElement).toBe(await card("env-2"));
  await userEvent.keyboard(" ");
  expect(await card("env-2")).toHaveProperty("checked", true);
  await userEvent.keyboard("{Home}");
  expect(document.activeElement).toBe(await card("env-1"));
});

test("cards are searched and filtered", async () => {
  const other = environment("env-9", { kind: "vscode", zone: { id: "zone-c", name: "深圳可用区C" } });
  platformHandlers.use(http.get(apiUrl("/dev-environments"), () => respondWithList(environment("env-1"), other)));
  renderAt("/training/create");
  await card("env-1");
  await userEvent.selectOptions(screen.getByLabelText("类型"), "VS Code");
  await screen.findByText("1 / 2 个环境");
  expect(screen.queryByRole("checkbox", { name: /env-1/ })).toBeNull();
  await userEvent.type(screen.getByLabelText("搜索环境"), "nowhere");
  await screen.findByText("没有符合条件的环境。");
  await userEvent.click(screen.getByRole("button", { name: "清除筛选" }));
  await card("env-1");
});

test("a variable gets a secret of the environments' project by name", async () => {
  const sent: CreateRequest[] = [];
  platformHandlers.use(
    http.get(apiUrl("/projects/:id/secrets"), () => respondWithList({ name: "wandb" }, { name: "hub" })),
    http.post(apiUrl("/training-tasks"), async ({ request }) => {
      sent.push((await request.json()) as CreateRequest);
      return respondWith({ taskId: task.taskId, status: "initializing", distributedInfo: {}, warnings: [] }, 201);
    }),
  );
  renderAt("/training/create");
  await userEvent.type(await screen.findByLabelText("任务名称"), "gpt");
  await userEvent.click(await card("env-1"));
  await userEvent.click(screen.getByText("高级选项"));
  await userEvent.click(screen.getByRole("button", { name: "添加变量" }));
  await userEvent.type(screen.getByLabelText("变量名"), "WANDB_API_KEY");
  await screen.findByRole("option", { name: "hub" });
  await userEvent.selectOptions(screen.getByLabelText("WANDB_API_KEY 的密钥"), "wandb");
  await userEvent.click(screen.getByRole("button", { name: "创建并启动训练" }));
  await waitFor(() => expect(sent[0]?.secretEnv).toEqual({ WANDB_API_KEY: "wandb" }));
});

test("what several nodes are expected to gain is shown with what it rests on", async () => {
  listening({
    scaling: {
      rows: [
        {
          nodes: 2,
          processes: 4,
          theoretical: 2,
          speedup: { low: 1.6, high: 1.9 },
          efficiency: { low: 0.8, high: 0.95 },
        },
      ],
      stepSeconds: { low: 1, high: 2 },
      tokensPerSecond: { low: 1000, high: 2000 },
      preflightId: null,
      reasons: [{ code: "SCALING_COMMUNICATION", message: "通信开销：1 GiB", hint: "" }],
    },
  });
  renderAt(pair);
  await screen.findByText("1.6x – 1.9x");
  expect(screen.getByText("80% – 95%")).toBeTruthy();
  expect(screen.getByText("通信开销：1 GiB")).toBeTruthy();
});

test("tags are sent, each once, and a copy of a task has them", async () => {
  const sent: CreateRequest[] = [];
  platformHandlers.use(
    http.post(apiUrl("/training-tasks"), async ({ request }) => {
      sent.push((await request.json()) as CreateRequest);
      return respondWith({ taskId: "task-1" }, 201);
    }),
    http.post(apiUrl("/training-tasks/:id/clone"), () =>
      respondWith({ request: { taskName: "copy", environmentIds: ["env-1"], tags: ["baseline", "v2"] } }),
    ),
  );
  renderAt("/training/create?from=task-1");
  const field = await screen.findByLabelText("标签");
  expect(field.getAttribute("value")).toBe("baseline, v2");
  await userEvent.type(field, "，baseline, long run");
  await userEvent.click(screen.getByRole("button", { name: "创建并启动训练" }));
  await waitFor(() => expect(sent).toHaveLength(1));
  expect(sent[0]?.tags).toEqual(["baseline", "v2", "long run"]);
});

test("the form's request goes on as the task of a sweep", async () => {
  platformHandlers.use(
    http.post(apiUrl("/sweeps/preview"), () => respondWithError(400, "INVALID", "有误")),
    http.get(apiUrl("/runs/columns"), () => respondWithList()),
  );
  renderAt("/training/create");
  await userEvent.type(await screen.findByLabelText("任务名称"), "wide");
  await userEvent.click(await card("env-1"));
  await userEvent.click(screen.getByRole("button", { name: "用于参数搜索…" }));
  expect((await screen.findByLabelText("参数搜索的名称")).getAttribute("value")).toBe("wide");
  expect(screen.getByText("env-1")).toBeTruthy();
});

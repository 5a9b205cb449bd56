import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { beforeEach, expect, test } from "vitest";
import type { Recommendation, TaskTemplate } from "@/api/types";
import { environment, framework } from "@/test/fixtures";
import { apiUrl, respondWithList, respondWith, platformHandlers } from "@/test/platform";
import { renderAt } from "@/test/render";

beforeEach(() => {
  const none = {
    environments: [],
    ranks: [],
    files: [],
    artifacts: [],
    command: [],
    problems: [],
    warnings: [],
    inUse: [],
  };
  platformHandlers.use(http.post(apiUrl("/training-tasks/preview"), () => respondWith({ ...none, proposal: null })));
});

const card = (id: string) => screen.findByRole("checkbox", { name: new RegExp(`name-of-${id}`) });

const variant = (nodeIds: string[], totalSteps: number, missing: TaskTemplate["full"]["missing"]) => ({
  nodes: 2,
  gpusPerNode: 2,
  gpuType: "A100",
  sameZone: true,
  framework: "pytorch-ddp",
  frameworkLabel: "PyTorch DDP",
  request: {
    taskName: "bert-large",
    launchMode: "existing",
    hyperparameters: { totalSteps },
    distributedConfig: { enabled: true, nodeIds, masterNode: nodeIds[0], framework: "pytorch-ddp" },
  },
  missing,
});

const bert: TaskTemplate = {
  id: "bert-large",
  title: "BERT预训练（中等规模）",
  need: "从头预训练BERT-Large",
  setting: "2 个节点",
  advantages: ["数据并行加速"],
  notes: [],
  full: variant(["env-1"], 1_000_000, [{ code: "TEMPLATE_LACKS_NODES", message: "还缺 1 个", hint: "可以先试跑" }]),
  small: variant(["env-1", "env-2"], 4, []),
};

test("a use case fills the form, ticks what is there and says what is missing", async () => {
  let weighed: unknown;
  platformHandlers.use(
    http.get(apiUrl("/task-templates"), () => respondWithList(bert)),
    http.post(apiUrl("/frameworks/recommend"), async ({ request }) => {
      weighed = ((await request.json()) as { hyperparameters?: unknown }).hyperparameters;
      return respondWith({ modelParameters: 1, items: [], rejected: [], scenes });
    }),
  );
  renderAt("/training/create");
  await card("env-1");
  await userEvent.click(screen.getByText("从典型用例开始（LLaMA2-7B、BERT-Large、GPT-3）"));
  await screen.findByText("从头预训练BERT-Large");
  await userEvent.click(screen.getByRole("button", { name: "按此填写" }));
  expect(screen.getByLabelText<HTMLInputElement>("任务名称").value).toBe("bert-large");
  expect(screen.getByText("已选 1")).toBeTruthy();
  expect(screen.getByText(/还缺 1 个/)).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "小规模试跑" }));
  expect(screen.getByText("已选 2")).toBeTruthy();
  expect(screen.queryByText(/还缺 1 个/)).toBeNull();
  await waitFor(() => expect(weighed).toEqual({ totalSteps: 4 }));
});

const scenes: Recommendation["scenes"] = [
  {
    code: "SCENE_LARGE",
    name: "大规模训练",
    feature: "数据并行",
    nodes: { min: 2, max: 4 },
    gpus: { min: 8, max: 32 },
    frameworks: [{ framework: "pytorch-ddp", label: "DDP" }],
    fits: true,
  },
  {
    code: "SCENE_HUGE",
    name: "超大模型",
    feature: "模型并行",
    nodes: { min: 4, max: null },
    gpus: { min: 32, max: null },
    frameworks: [
      { framework: "deepspeed", label: "DeepSpeed" },
      { framework: "pytorch-fsdp", label: "FSDP" },
    ],
    fits: false,
  },
];

test("several zones bring what speaks for and against them, as measured, and the row of the table of scenes", async () => {
  const measured = { rttMs: 31.5, bandwidthMbps: 420, preflightId: "preflight-7", at: "2026-01-01T00:00:00Z" };
  platformHandlers.use(
    http.get(apiUrl("/dev-environments"), () =>
      respondWithList(environment("env-1"), environment("env-2", { zone: { id: "zone-far", name: "深圳可用区C" } })),
    ),
    http.post(apiUrl("/frameworks/recommend"), () =>
      respondWith({ modelParameters: 1, items: [], rejected: [], scenes }),
    ),
    http.get(apiUrl("/preflights/between-zones"), ({ request }) => {
      expect(new URL(request.url).searchParams.getAll("environments")).toEqual(["env-1", "env-2"]);
      return respondWith({ items: [{ from: "env-1", to: "env-2", ...measured }] });
    }),
  );
  renderAt("/training/create");
  await userEvent.click(await card("env-1"));
  expect(screen.queryByText("跨可用区训练")).toBeNull();
  await userEvent.click(await card("env-2"));
  expect(await screen.findByText("容灾能力强")).toBeTruthy();
  expect(await screen.findByText("网络延迟：预检实测 RTT 最高 31.5 ms")).toBeTruthy();
  expect(screen.getByText("带宽：预检实测最低 420 Mbit/s")).toBeTruthy();
  expect(screen.getByText("查看预检").getAttribute("href")).toBe("/preflight/preflight-7");
  await userEvent.click(await screen.findByText("大规模训练 · DDP · 数据并行"));
  const row = screen.getByRole("row", { name: /超大模型/ });
  expect(within(row).getByText("4+")).toBeTruthy();
  expect(within(row).getByText("DeepSpeed/FSDP")).toBeTruthy();
});

test("without a test of the network its usual latency is said to be usual", async () => {
  platformHandlers.use(
    http.get(apiUrl("/dev-environments"), () =>
      respondWithList(environment("env-1"), environment("env-2", { zone: { id: "zone-far", name: "深圳可用区C" } })),
    ),
    http.get(apiUrl("/preflights/between-zones"), () => respondWith({ items: [] })),
  );
  renderAt("/training/create");
  await userEvent.click(await card("env-1"));
  await userEvent.click(await card("env-2"));
  expect(await screen.findByText("网络延迟高（RTT 通常为 5-50ms，尚未实测）")).toBeTruthy();
});

test("a framework that the cluster has not installed says so and can be looked at all the same", async () => {
  const clusters = [
    { clusterId: "cluster-1", available: false, lacks: ["horovod"], message: "没有安装", hint: "make" },
  ];
  platformHandlers.use(
    http.get(apiUrl("/frameworks"), () =>
      respondWithList(framework, { ...framework, value: "horovod", label: "Horovod", clusters }),
    ),
  );
  renderAt("/training/create");
  await userEvent.click(await card("env-1"));
  await userEvent.click(await card("env-2"));
  const option = await screen.findByRole<HTMLOptionElement>("option", { name: "Horovod（未安装）" });
  expect(option.disabled).toBe(false);
});

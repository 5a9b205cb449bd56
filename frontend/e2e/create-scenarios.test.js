// The requirement's three scenarios, from tick to first metric, on real training.
import assert from "node:assert/strict";
import { defineCreateSuite } from "./create-page.js";
import { step } from "./suite.js";

const TRAINING_MS = 600_000;
let page, open, unfold, openTab, looksRight, eventually, button, card, named, chosenText, fact;

const { test, journey } = defineCreateSuite({
  options: { trains: true },
  use: (given) =>
    ({ page, open, unfold, openTab, looksRight, eventually, button, card, named, chosenText, fact } = given),
});

/** A form whose task trains until it is stopped. */
async function openFor(name) {
  await open();
  await named("taskName").fill(name);
  await unfold("高级选项");
  await named("hyperparameters.totalSteps").fill("100000");
}

/** Creates the task, reads the toast, and waits on the task's page for the first metric and its chart. */
async function trains(description) {
  await button("创建并启动训练").click();
  await page.getByText("训练任务创建成功").waitFor();
  await page.getByText(description, { exact: true }).waitFor();
  await page.waitForURL(/\/training\/task-/);
  const api = `/api/v1/training-tasks/${new URL(page.url()).pathname.split("/").at(-1)}`;
  const read = (path) => page.evaluate(async (path) => (await (await fetch(path)).json()).data, api + path);
  const point = await eventually(
    async () => {
      const task = await read("");
      assert.ok(!task.endedAt, `ended: ${JSON.stringify(task.reason)}`);
      return (await read("/metrics")).items.find(({ values }) => "loss" in values);
    },
    "a first metric",
    TRAINING_MS,
  );
  assert.ok(Number.isFinite(point.values.loss));
  await page.locator("main canvas").first().waitFor();
  return { task: await read(""), read };
}

async function stopped() {
  await button("停止").click();
  await page.getByRole("alertdialog").getByRole("button", { name: "停止" }).click();
  await page.locator("h1").getByText("已停止", { exact: true }).waitFor({ timeout: TRAINING_MS });
}

test("scenario 1: one environment, from selection to first metric", async () => {
  await openFor("scenario-one");
  await card("pytorch-dev-env").click();
  await page.getByText("单机训练", { exact: true }).waitFor();
  assert.equal(await fact("总GPU"), "2 个 (A100)");
  assert.equal(await fact("总CPU"), "16 核");
  assert.equal(await fact("总内存"), "128 GB");
  await page.getByText("快速启动，预计 10 秒内开始训练").waitFor();
  await looksRight("create-single");
  const { task } = await trains("使用环境: pytorch-dev-env");
  assert.equal(task.distributed, false);
  assert.equal(task.worldSize, 2);
  await stopped();
});

test("scenario 2: two environments in one zone with DDP, from selection to first metric", async () => {
  await openFor("scenario-two");
  for (const name of ["pytorch-dev-env", "cv-experiment-env"]) await card(name).click();
  await page.getByRole("heading", { name: "分布式训练配置" }).waitFor();
  assert.equal(await fact("训练节点"), "2 个");
  assert.equal(await fact("总GPU"), "4 个 (A100, V100)");
  assert.equal(await fact("总CPU"), "32 核");
  assert.equal(await fact("总内存"), "256 GB");
  assert.equal(await page.locator("aside dt").getByText("跨可用区").count(), 0);
  assert.equal(await chosenText(page.getByLabel("主节点", { exact: true })), "pytorch-dev-env");
  assert.equal(await chosenText(page.getByLabel("分布式框架")), "PyTorch DDP");
  await page.getByText("分布式训练 · 使用 PyTorch DDP").waitFor();
  await page.getByText("所选环境的 GPU 型号不同：A100, V100。").waitFor();
  await page.getByText("分布式训练将在多个节点上并行执行，确保所有节点网络互通").waitFor();
  await looksRight("create-two");
  const { task } = await trains("分布式训练 · 2个节点 · 总计4个GPU");
  assert.deepEqual([task.worldSize, task.framework, task.masterNode], [4, "pytorch-ddp", "env-001"]);
  await stopped();
});

journey("scenario 3, and its clone", [
  step("scenario 3: three zones with DeepSpeed, from selection to first metric", async () => {
    await openFor("scenario-three");
    for (const name of ["pytorch-dev-env", "llm-training-env", "nlp-research-lab"]) await card(name).click();
    await page.getByLabel("分布式框架").selectOption({ label: "DeepSpeed" });
    assert.equal(await fact("训练节点"), "3 个");
    assert.equal(await fact("总GPU"), "14 个 (A100)");
    assert.equal(await fact("总CPU"), "112 核");
    assert.equal(await fact("总内存"), "896 GB");
    assert.equal(await fact("跨可用区"), "3 个");
    await page.getByText("跨可用区训练可能会有网络延迟").waitFor();
    await page.getByText("可以提交").waitFor();
    await looksRight("create-three");
    const { task } = await trains("分布式训练 · 3个节点 · 总计14个GPU");
    assert.deepEqual([task.worldSize, task.framework, task.nodeCount], [14, "deepspeed", 3]);
    await stopped();
  }),

  step("clone fills the same form, and retry adds the newest checkpoint", async () => {
    const id = await page.evaluate(async () => {
      const answer = await (await fetch("/api/v1/training-tasks?search=scenario-three")).json();
      return answer.data.items[0].taskId;
    });
    await open(`?from=${id}`);
    await eventually(async () => (await named("taskName").inputValue()) === "scenario-three", "the name");
    const framework = page.getByLabel("分布式框架"); // its name comes with the list of them
    await eventually(async () => (await chosenText(framework)) === "DeepSpeed", "the framework's name");
    for (const name of ["pytorch-dev-env", "llm-training-env", "nlp-research-lab"])
      assert.equal(await card(name).isChecked(), true, name);
    const newest = await page.evaluate(async (id) => {
      const answer = await (await fetch(`/api/v1/training-tasks/${id}/checkpoints?pageSize=200`)).json();
      return answer.data.items.toSorted((a, b) => b.step - a.step)[0]?.path ?? "";
    }, id);
    await open(`?retry=${id}`);
    await unfold("高级选项");
    await openTab("resumeFrom");
    assert.equal(await named("resumeFrom").inputValue(), newest);
  }),
]);

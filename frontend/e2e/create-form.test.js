// The create page against a real platform: what it refuses, shows, remembers, and how it copes with thousands.
import assert from "node:assert/strict";
import { setTheme } from "./browser.js";
import { defineCreateSuite } from "./create-page.js";

let page, fermi, open, unfold, openTab, takeScript, looksRight, eventually, button, card, named, chosenText, fact;

const { test } = defineCreateSuite({
  use: (given) =>
    ({ page, fermi, open, unfold, openTab, takeScript, looksRight, eventually, button, card, named, chosenText, fact } =
      given),
});

test("an empty form lists the missing fields before it is submitted", async () => {
  await open();
  await page.getByText("勾选环境后，这里会显示汇总。").waitFor();
  await page.getByText("请至少选择一个开发环境").waitFor();
  assert.equal(await named("taskName").getAttribute("aria-invalid"), null, "a field not come to is left alone");
  await looksRight("create-empty");
  await button("创建并启动训练").click();
  await page.locator("[data-sonner-toast]").getByText("请输入任务名称").waitFor();
  assert.equal(await named("taskName").getAttribute("aria-invalid"), "true");
  assert.equal(await named("taskName").evaluate((element) => element === document.activeElement), true);
});

test("every invalid field is shown before the form is submitted", async () => {
  await open("?environments=env-001,env-003");
  await page.getByLabel("分布式框架").selectOption("deepspeed");
  await named("taskName").fill("refused");
  await page.getByText("可以提交").waitFor();
  await unfold("高级选项");
  await unfold("框架选项");
  const wrong = [
    ["taskName", " ", "请输入任务名称"],
    ["taskName", "x".repeat(101), "101"],
    ["hyperparameters.batchSize", "0", "batchSize"],
    ["hyperparameters.learningRate", "fast", "learningRate"],
    ["env", "RANK=7", "RANK"],
    ["env", "9LIVES=1", "9LIVES"],
    ["maxRestarts", "1000", "1000"],
    ["minRunSeconds", "25h", "86400"],
    ["hangSeconds", "soon", ""],
    ["resumeFrom", "/no/such/checkpoint", ""],
    ["distributedConfig.masterPort", "80", "80"],
    ["distributedConfig.strategy.dataParallel", "two", ""],
    ["distributedConfig.options.zeroStage", "9", "zeroStage"],
    ["distributedConfig.options.trainBatchSize", "7", "7"],
    ["distributedConfig.options.config", "{not json", "config"],
  ];
  const refuses = async (name, value, words) => {
    const field = named(name);
    await openTab(name);
    const before = await field.inputValue();
    await field.fill(value);
    await eventually(async () => (await field.getAttribute("aria-invalid")) === "true", `${name} = ${value} refused`);
    const below = await field.getAttribute("aria-describedby");
    assert.ok((await page.locator(`[id="${below}"]`).innerText()).includes(words), `${name} = ${value}`);
    await field.fill(before);
    await eventually(async () => (await field.getAttribute("aria-invalid")) === null, `${name} accepted again`);
  };
  for (const [name, value, words] of wrong) await refuses(name, value, words);
  await named("datasetId").selectOption("");
  await eventually(
    async () => (await named("datasetId").getAttribute("aria-invalid")) === "true",
    "no dataset refused",
  );
  await button("创建并启动训练").click();
  await page.locator("[data-sonner-toast]").getByText("请选择数据集").waitFor();
  await looksRight("create-refused");
  await takeScript();
  await named("entrypoint.script").waitFor();
  await page.getByText("可以提交").waitFor({ state: "hidden" });
  await looksRight("create-script");
  await named("entrypoint.script").fill("no-such-script.py");
  await eventually(
    async () => (await named("entrypoint.script").getAttribute("aria-invalid")) === "true",
    "a script that is not there refused",
  );
});

test("an environment that is not running cannot be selected and shows the reason", async () => {
  await open();
  const stopped = card("vscode-debug-env");
  assert.equal(await stopped.getAttribute("aria-disabled"), "true");
  await stopped.focus();
  await page.keyboard.press("Space");
  assert.equal(await stopped.isChecked(), false);
  const facts = page.locator(`[id="${await stopped.getAttribute("aria-describedby")}"]`);
  assert.match(await facts.innerText(), /未在运行/);
});

test("an environment that stopped after it was selected shows an error on its card", async () => {
  await open("?environments=env-004");
  await eventually(
    async () => (await card("vscode-debug-env").getAttribute("aria-invalid")) === "true",
    "the stopped environment refused",
  );
  await card("vscode-debug-env").click();
  await page.getByText("已选 0", { exact: true }).waitFor();
});

test("the first selected environment is the master, which can be changed", async () => {
  await open();
  await page.getByText("llm-training-env", { exact: true }).click(); // the card, beside its box
  await card("pytorch-dev-env").focus();
  await page.keyboard.press("Space");
  await card("nlp-research-lab").click();
  const master = page.getByLabel("主节点", { exact: true });
  const badged = () => page.locator("label", { hasText: "主节点" }).filter({ has: page.getByRole("checkbox") });
  assert.equal(await chosenText(master), "llm-training-env");
  assert.match(await badged().innerText(), /llm-training-env/);
  await card("llm-training-env").click();
  assert.equal(await chosenText(master), "pytorch-dev-env");
  await master.selectOption({ label: "nlp-research-lab" });
  assert.match(await badged().innerText(), /nlp-research-lab/);
  const first = page.getByRole("table", { name: "Rank 分配" }).getByRole("row").nth(1);
  await eventually(async () => (await first.innerText()).includes("nlp-research-lab"), "rank 0 on the new master");
  await card("nlp-research-lab").click();
  await page.getByText("单机训练", { exact: true }).waitFor();
  assert.equal(await master.count(), 0);
});

test("the preview shows ranks, files and the engine's objects, and follows the form", async () => {
  await open("?environments=env-001,env-003");
  const table = page.getByRole("table", { name: "Rank 分配" });
  await eventually(async () => (await table.getAttribute("aria-rowcount")) === "7", "six ranks");
  assert.match(await table.getByRole("row").nth(3).innerText(), /2\s+llm-training-env\s+0\s+A100 #0/);
  await button("rank 5 的环境变量").click();
  await page.getByLabel("rank-5.env").getByText("WORLD_SIZE", { exact: true }).waitFor();
  await page.getByLabel("分布式框架").selectOption("deepspeed");
  await page.getByRole("tab", { name: "文件" }).click();
  await button("ds_config.json").click();
  await page.getByLabel("ds_config.json").getByText('"zero_optimization"').waitFor();
  await unfold("框架选项");
  await named("distributedConfig.options.zeroStage").fill("3");
  await eventually(
    async () => /"stage": 3/.test(await page.getByLabel("ds_config.json").innerText()),
    "the stage in the file",
  );
  await page.getByRole("tab", { name: "引擎对象" }).click();
  await page.getByRole("tabpanel").locator("pre").waitFor();
  await looksRight("create-preview");
});

test("a recommendation follows the model size and can be applied", async () => {
  await open("?environments=env-003,env-005");
  await page.getByLabel("模型参数量").fill("70B");
  await page.getByText("推荐 DeepSpeed").waitFor();
  await page.getByRole("listitem").filter({ hasText: "推荐 DeepSpeed" }).getByRole("button", { name: "采用" }).click();
  assert.equal(await chosenText(page.getByLabel("分布式框架")), "DeepSpeed");
  await looksRight("create-recommended");
});

test("a draft survives a reload in both languages and themes until it is discarded", async () => {
  await open();
  await named("taskName").fill("unsent");
  await card("cv-experiment-env").click();
  await button("Switch to English").click();
  await page.getByRole("heading", { name: "Dev environments (one or more)" }).waitFor();
  assert.equal(await named("taskName").inputValue(), "unsent");
  await setTheme(page, "dark");
  await page.reload();
  await page.getByText("Restored your unsubmitted draft.").waitFor();
  assert.equal(await page.locator("html").getAttribute("data-theme"), "dark");
  assert.equal(await named("taskName").inputValue(), "unsent");
  assert.equal(await card("cv-experiment-env").isChecked(), true);
  await page.getByText("Single-node training", { exact: true }).waitFor();
  await page.getByText("Ready to submit").waitFor();
  const text = (await page.locator("main").innerText()).replaceAll(/\S*可用区\S/g, "");
  assert.doesNotMatch(text, /\p{Script=Han}/u, "page and platform speak English");
  await looksRight("create-english");
  await button("Start over").click();
  assert.equal(await named("taskName").inputValue(), "");
  await button("切换到中文").click();
});

test("the tab order of the form is its reading order", async () => {
  await open("?environments=env-001,env-003");
  await page.getByText("还需完成 1 项").waitFor();
  await named("taskName").focus();
  const order = [];
  for (let press = 0; press < 60; press++) {
    await page.keyboard.press("Tab");
    order.push(
      await page.evaluate(() => {
        const at = document.activeElement;
        return at.name || at.getAttribute("aria-label") || at.innerText;
      }),
    );
  }
  const stations = [
    "datasetId",
    "modelId",
    "launchMode",
    "清空",
    "environments",
    "排序",
    "environments.env-002",
    "distributedConfig.masterNode",
    "distributedConfig.framework",
    "取消选择 pytorch-dev-env",
  ];
  const places = stations.map((station) => order.indexOf(station));
  assert.ok(!places.includes(-1), `reached: ${order.join(", ")}`);
  assert.deepEqual(
    places,
    places.toSorted((a, b) => a - b),
    order.join(", "),
  );
});

test("the nearest valid splits to 2 × 4 × 8 on 14 GPUs can be applied with one click", async () => {
  await open();
  for (const name of ["pytorch-dev-env", "llm-training-env", "nlp-research-lab"]) await card(name).click();
  await page.getByLabel("分布式框架").selectOption({ label: "DeepSpeed" });
  const asked = { dataParallel: 2, pipelineParallel: 4, tensorParallel: 8 };
  for (const [degree, value] of Object.entries(asked))
    await named(`distributedConfig.strategy.${degree}`).fill(String(value));
  await page.getByText("将在 14 个进程上运行").waitFor();
  await page.getByText("最接近的可行切分：", { exact: true }).waitFor();
  await looksRight("create-splits");
  await page.getByRole("button", { name: "张量并行 2 × 流水线并行 1 × 数据并行 7" }).click();
  await page.getByText("最接近的可行切分：", { exact: true }).waitFor({ state: "detached" });
  await page.getByText("将在 14 个进程上运行").waitFor({ state: "detached" });
  assert.equal(await named("distributedConfig.strategy.tensorParallel").inputValue(), "2");
  assert.equal(await named("distributedConfig.strategy.dataParallel").inputValue(), "7");
});

test("five thousand environments can be scrolled and filtered", async (context) => {
  if (!fermi.seed) return context.skip("the platform is not ours to seed");
  fermi.seed(5000);
  context.after(() => fermi.seed(0, "unseed.py"));
  await open();
  const box = page.getByRole("group", { name: "选择开发环境（支持多选）" });
  const began = Date.now();
  await page.reload();
  await page.getByText(/^5,006 \/ 5,006 个环境$/).waitFor();
  context.diagnostic(`5,006 environments are there ${Date.now() - began} ms after a reload`);
  assert.ok((await box.getByRole("checkbox").count()) < 60, "few of them exist in the page");

  const scrolled = await frames(async () => {
    await box.hover();
    for (let turn = 0; turn < 60; turn++) await page.mouse.wheel(0, 400);
  });
  context.diagnostic(`frames while scrolling: ${scrolled}`);
  const filtered = await frames(() => page.getByLabel("搜索环境").pressSequentially("node-0499", { delay: 60 }));
  context.diagnostic(`frames while typing a filter: ${filtered}`);
  await page.getByText(/^10 \/ 5,006 个环境$/).waitFor();
  const narrowed = await frames(async () => {
    await page.getByLabel("搜索环境").fill("");
    await page.getByLabel("GPU 型号").selectOption("H100");
    await page.getByLabel("排序").selectOption("gpuCount");
    await page.getByText(/^1,250 \/ 5,006 个环境$/).waitFor();
  });
  context.diagnostic(`frames while clearing, filtering and sorting: ${narrowed}`);

  await page.getByLabel("排序").focus();
  for (const name of ["清除筛选", "跳过环境列表"]) {
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.innerText), name);
  }
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  assert.match(await page.evaluate(() => document.activeElement.innerText), /^高级选项/, "the list is skipped");

  await box.getByRole("checkbox").first().focus();
  await page.keyboard.press("End");
  await eventually(
    () => page.evaluate(() => document.activeElement?.closest('[role="listitem"]')?.ariaPosInSet === "1250"),
    "the last card with the focus",
  );
  await page.keyboard.press("Home");
  for (let count = 0; count < 64; count++) {
    await page.keyboard.press("Space");
    await page.keyboard.press("ArrowRight");
  }
  await page.getByText("已选 64", { exact: true }).waitFor();
  assert.equal(await fact("总GPU"), "512 个 (H100)");
  const table = page.getByRole("table", { name: "Rank 分配" });
  await eventually(async () => (await table.getAttribute("aria-rowcount")) === "513", "512 ranks in the preview");
  assert.ok((await table.getByRole("row").count()) < 100, "few of the ranks exist in the page");
  await looksRight("create-many");
});

/** Times between frames while `work` is done, in ms. */
async function frames(work) {
  await page.evaluate(() => {
    const times = [];
    let last = performance.now();
    const next = (now) => {
      times.push(now - last);
      last = now;
      window.framesRequest = requestAnimationFrame(next);
    };
    window.framesRequest = requestAnimationFrame(next);
    window.frameTimes = times;
  });
  await work();
  const times = await page.evaluate(() => {
    cancelAnimationFrame(window.framesRequest);
    return window.frameTimes.toSorted((a, b) => a - b);
  });
  const at = (share) => times[Math.min(Math.floor(times.length * share), times.length - 1)].toFixed(0);
  return `${times.length} frames, median ${at(0.5)} ms, 95 % below ${at(0.95)} ms, longest ${at(1)} ms`;
}

// The console against a real platform and real training.
import assert from "node:assert/strict";
import { looksRight as looks } from "./browser.js";
import { pageTests } from "./pages.js";
import { defineSuite, step } from "./suite.js";

const TRAINING_MS = 240_000;
let fermi, page;

const { test, journey } = defineSuite({
  options: { trains: true },
  use: (given) => ({ fermi, page } = given),
});

const open = (path) => page.goto(fermi.url + path);
const button = (name) => page.getByRole("button", { name, exact: true });
const status = (text) => page.locator("h1").getByText(text, { exact: true });
const card = (name) => page.getByRole("checkbox", { name: new RegExp(name) });

/** What stands under one of the figures at the top of a task's page. */
const figure = (label) =>
  page
    .locator("dl div", { has: page.getByText(label, { exact: true }) })
    .locator("dd")
    .first();

async function steps() {
  return Number((await figure("步数").innerText()).split("/")[0].replaceAll(/\D/g, ""));
}

/** Polls `look` until it gives something true. */
async function eventually(look, what, ms = TRAINING_MS) {
  const deadline = Date.now() + ms;
  for (;;) {
    const seen = await look();
    if (seen) return seen;
    assert.ok(Date.now() < deadline, `never saw ${what}; the page says:\n${await page.locator("body").innerText()}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function fillIn(name, totalSteps, ...environments) {
  await open("/training/create");
  await page.getByLabel("任务名称").fill(name);
  for (const environment of environments) await card(environment).click();
  await page.locator("summary", { hasText: "高级选项" }).click();
  await page.getByLabel("总步数").fill(String(totalSteps));
}

async function create() {
  await button("创建并启动训练").click();
  await page.getByText("训练任务创建成功").waitFor();
  await page.waitForURL(/\/training\/task-/);
}

const looksRight = (name) => looks(page, name);

test(
  "an anonymous user is redirected to sign in, and a wrong password is reported",
  async () => {
    await open("/training");
    await page.waitForURL(/\/sign-in\?next=%2Ftraining/);
    await page.getByLabel("用户名或邮箱").fill("nobody");
    await page.getByLabel("密码").fill("wrong");
    await button("登录").click();
    await page.getByRole("alert").getByText("用户名或密码不正确").waitFor();
    await looksRight("sign-in");
  },
  { signedIn: false },
);

test(
  "the one-time link signs in",
  async () => {
    await page.goto(fermi.signInLink());
    await page.waitForURL("**/overview");
    await page.getByRole("heading", { name: "需要处理" }).waitFor();
    await open("/training");
    await page.getByRole("heading", { name: "训练任务" }).waitFor();
  },
  { signedIn: false },
);

test("an empty form shows errors at its fields", async () => {
  await open("/training/create");
  await card("pytorch-dev-env").click();
  await button("创建并启动训练").click();
  const name = page.getByLabel("任务名称");
  await eventually(async () => (await name.getAttribute("aria-invalid")) === "true", "the name refused");
  await name.fill("now-it-has-a-name");
  await page.getByText("可以提交").waitFor();
  assert.equal(await name.getAttribute("aria-invalid"), null);
});

test("unticking the master chooses another one", async () => {
  await open("/training/create");
  for (const name of ["pytorch-dev-env", "llm-training-env", "nlp-research-lab"]) await card(name).click();
  const master = page.getByLabel("主节点", { exact: true });
  assert.equal(await master.evaluate((select) => select.selectedOptions[0].text), "pytorch-dev-env");
  await page.getByText("rank", { exact: true }).waitFor();
  await looksRight("create");
  await card("pytorch-dev-env").click();
  assert.equal(await master.evaluate((select) => select.selectedOptions[0].text), "llm-training-env");
});

journey("a task on one environment, from its creation to its removal", [
  step("a task on one environment shows live metrics", async () => {
    await fillIn("e2e-one", 100_000, "pytorch-dev-env");
    await page.getByText("单机训练", { exact: true }).waitFor();
    await create();
    await status("训练中").waitFor({ timeout: TRAINING_MS });
    const first = await eventually(steps, "a first step");
    await eventually(async () => (await steps()) > first, "the steps moving on without a reload");
    assert.match(await figure("损失").innerText(), /^\d+(\.\d+)?$/);
    await page.getByRole("img", { name: /^损失/ }).locator("canvas").waitFor();
    await page.getByRole("group", { name: "训练日志" }).getByText(/loss/).first().waitFor();
  }),
  step("a killed rank is shown, and training resumes from the checkpoint", async () => {
    await page.getByRole("tab", { name: "检查点" }).click();
    await page.getByRole("tabpanel").locator("tbody tr").first().waitFor({ timeout: TRAINING_MS });
    await page.getByRole("button", { name: /^rank 1/ }).hover();
    const pid = Number(/进程号 (\d+)/.exec(await page.locator("aside").innerText())[1]);
    process.kill(pid, "SIGKILL");
    await page.locator("aside").getByText("第 2 次", { exact: true }).waitFor({ timeout: TRAINING_MS });
    await status("训练中").waitFor({ timeout: TRAINING_MS });
    const resumed = await eventually(steps, "a step of the second attempt");
    await eventually(async () => (await steps()) > resumed, "the steps moving on after the restart");
    await page.getByRole("tab", { name: "日志" }).click();
    await looksRight("task-running");
  }),
  step("a task is stopped", async () => {
    await button("停止").click();
    await page.getByRole("alertdialog").getByRole("button", { name: "停止" }).click();
    await status("已停止").waitFor({ timeout: TRAINING_MS });
    await button("删除").waitFor();
  }),
  step("the list shows it and is filtered by the address", async () => {
    await open("/training");
    await page.getByRole("link", { name: "e2e-one" }).waitFor();
    await looksRight("tasks");
    await page.getByLabel("状态").selectOption("failed");
    await page.waitForURL(/status=failed/);
    await page.getByRole("link", { name: "e2e-one" }).waitFor({ state: "detached" });
    await page.getByLabel("状态").selectOption("stopped");
    await page.waitForURL(/status=stopped/);
    await page.getByRole("link", { name: "e2e-one" }).waitFor();
  }),
  step("the language is switched with one click and remembered", async () => {
    await button("Switch to English").click();
    await page.getByRole("heading", { name: "Training tasks" }).waitFor();
    await page.reload();
    await page.getByRole("heading", { name: "Training tasks" }).waitFor();
    await page.getByRole("link", { name: "e2e-one" }).click();
    await page.locator("h1").getByText("Stopped", { exact: true }).waitFor();
    const reason = await page.locator("main").innerText();
    assert.doesNotMatch(reason.replaceAll(/北京可用区A/g, ""), /\p{Script=Han}/u, "the server speaks English too");
    await looksRight("task-english");
    await button("切换到中文").click();
    await status("已停止").waitFor();
  }),
  step("a deleted task disappears", async () => {
    await button("删除").click();
    await page.getByRole("alertdialog").getByRole("button", { name: "删除" }).click();
    await page.waitForURL("**/training");
    await page.getByRole("link", { name: "e2e-one" }).waitFor({ state: "detached" });
  }),
]);

journey("a DDP task on two environments, and its clone", [
  step("a DDP task on two environments trains to the end", async () => {
    await fillIn("e2e-two", 60, "pytorch-dev-env", "cv-experiment-env");
    await page.getByText("分布式训练", { exact: true }).waitFor();
    await eventually(
      async () => (await page.getByRole("table", { name: "Rank 分配" }).getAttribute("aria-rowcount")) === "5",
      "four ranks in the preview",
    );
    await create();
    await status("已完成").waitFor({ timeout: TRAINING_MS });
    await eventually(async () => (await steps()) === 60, "the last step");
    await eventually(
      async () => (await page.getByRole("button", { name: /^rank \d, 正常结束$/ }).count()) === 4,
      "four ranks that have ended",
    );
    await looksRight("task-succeeded");
  }),
  step("events, checkpoints, files and the logs of another rank can be read", async () => {
    await page.getByRole("button", { name: /^rank 2/ }).click();
    await eventually(
      async () => (await page.getByLabel("进程", { exact: true }).inputValue()) === "2",
      "rank 2 chosen",
    );
    await page.getByRole("tab", { name: "事件" }).click();
    await page.getByRole("tabpanel").locator("li").first().waitFor();
    await looksRight("task-events");
    await page.getByRole("tab", { name: "检查点" }).click();
    await page.getByRole("tabpanel").locator("tbody tr").first().waitFor();
    await looksRight("task-checkpoints");
    await page.getByRole("tab", { name: "生成的文件" }).click();
    await page.getByRole("tabpanel").locator("pre").waitFor();
    await looksRight("task-files");
  }),
  step("the log is searched by the platform", async () => {
    await page.getByRole("tab", { name: "日志" }).click();
    await page.getByLabel("进程", { exact: true }).selectOption("all");
    await page.getByLabel("在日志中查找").fill('"loss"');
    await page.locator("mark").first().waitFor();
    await page.getByLabel("在日志中查找").fill("nothing says this");
    await page.getByText("没有匹配的行").waitFor();
  }),
  step("a clone starts from the same request", async () => {
    await page.getByRole("link", { name: "克隆" }).click();
    await eventually(async () => (await page.getByLabel("任务名称").inputValue()).startsWith("e2e-two"), "the name");
    assert.equal(await card("pytorch-dev-env").isChecked(), true);
    assert.equal(await card("cv-experiment-env").isChecked(), true);
  }),
]);

pageTests({ test, now: () => ({ page, fermi }), looksRight, eventually, trainingMs: TRAINING_MS });

test(
  "pages cannot be opened after signing out",
  async () => {
    await page.goto(fermi.signInLink());
    await page.waitForURL("**/overview");
    await button("退出登录").click();
    await page.waitForURL("**/sign-in");
    await open("/training");
    await page.waitForURL(/\/sign-in/);
  },
  { signedIn: false },
);

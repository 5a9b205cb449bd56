// A project's secrets in the browser: set, used by real training, replaced, removed, and never shown again.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { defineCreateSuite } from "./create-page.js";
import { step } from "./suite.js";

const TRAINING_MS = 600_000;
/** Of different lengths, so that a script tells them apart without printing them. */
const FIRST = `sesame-${randomBytes(12).toString("hex")}`;
const SECOND = `sesame-${randomBytes(20).toString("hex")}`;
const SCRIPT = `import json, os
print("a key of", len(os.environ["WANDB_API_KEY"]), "characters", flush=True)
for step in range(1, 4):
    print(json.dumps({"step": step, "loss": 1 / step}), flush=True)
`;
let page, fermi, open, unfold, openTab, takeScript, looksRight, button, named, answers, script, taskId;

const { journey } = defineCreateSuite({
  use: (given) => ({ page, fermi, open, unfold, openTab, takeScript, looksRight, button, named } = given),
});

/** Every answer to the browser as { path, text }, messages of event streams too. */
async function listen() {
  const heard = [];
  page.context().on("response", async (response) => {
    const stream = response.headers()["content-type"]?.startsWith("text/event-stream");
    const text = stream ? "" : await response.text().catch(() => ""); // a redirect's, or of a page that was left
    heard.push({ path: `${response.request().method()} ${new URL(response.url()).pathname}`, text });
  });
  const debugged = await page.context().newCDPSession(page);
  await debugged.send("Network.enable");
  debugged.on("Network.eventSourceMessageReceived", ({ data }) => heard.push({ path: "stream", text: data }));
  return heard;
}

const goTo = (path) => page.goto(new URL(path, page.url()).href);
const dialog = () => page.getByRole("dialog");
const inDialog = (name) => dialog().getByRole("button", { name, exact: true });
const secrets = (label) => page.getByRole("list", { name: label, exact: true });

/** The page's text and attributes, what its controls hold, and what the browser keeps. */
const held = () =>
  page.evaluate(() => {
    const controls = [...document.querySelectorAll("input, textarea, select")].map(({ value }) => value);
    return [
      document.documentElement.outerHTML,
      ...controls,
      ...Object.values({ ...localStorage, ...sessionStorage }),
    ].join();
  });

async function unseen(where) {
  const shown = await held();
  for (const value of [FIRST, SECOND]) {
    assert.ok(!shown.includes(value), `${where} shows a value`);
    const told = answers.filter(({ text }) => text.includes(value)).map(({ path }) => path);
    assert.deepEqual(told, [], `${where}: answers with a value`);
  }
}

/** Types a value; that `held` finds it while it stands in the dialog says that it would find it later. */
async function typed(label, value) {
  await dialog().getByLabel(label, { exact: true }).fill(value);
  assert.equal(await dialog().getByLabel(label, { exact: true }).getAttribute("type"), "password");
  assert.ok((await held()).includes(value));
}

/** Follows the task that was just created to its end: its log says how long the key was. */
async function endsWith(value, done, logs) {
  await page.waitForURL(/\/training\/task-/);
  taskId = new URL(page.url()).pathname.split("/").at(-1);
  await page.locator("h1").getByText(done, { exact: true }).waitFor({ timeout: TRAINING_MS });
  await page.getByRole("group", { name: logs }).getByText(`a key of ${value.length} characters`).first().waitFor();
  for (const tab of await page.getByRole("tab").all()) {
    await tab.click();
    await page.getByRole("tabpanel").waitFor();
    await unseen(await tab.innerText());
  }
  const metrics = await page.evaluate(
    async (id) => (await (await fetch(`/api/v1/training-tasks/${id}/metrics`)).json()).data.items,
    taskId,
  );
  assert.ok(metrics.some(({ values }) => "loss" in values));
}

journey("a secret, from being set to being removed", [
  step("a secret is set and listed by name only", async () => {
    answers = await listen();
    script = fermi.write("keyed.py", SCRIPT);
    await page.goto(`${fermi.url}/settings`);
    await button("设置密钥").click();
    await dialog().getByLabel("名称", { exact: true }).fill("no name");
    await typed("值", FIRST);
    await inDialog("保存").click();
    await dialog().locator('[name="name"][aria-invalid="true"]').waitFor();
    await dialog().getByLabel("名称", { exact: true }).fill("wandb");
    await looksRight("settings-secret");
    await inDialog("保存").click();
    await secrets("密钥").getByText("wandb", { exact: true }).waitFor();
    await unseen("the settings");
    await page.reload();
    await secrets("密钥")
      .getByText(/设置于/)
      .waitFor();
    await unseen("the settings after a reload");
    await looksRight("settings-secrets");
  }),

  step("a task trains with it, and no answer about the task has its value", async () => {
    await open("?environments=env-001");
    await named("taskName").fill("keyed");
    await takeScript();
    await named("entrypoint.script").fill(script);
    await unfold("高级选项");
    await openTab("env");
    await button("添加变量").click();
    await page.getByLabel("变量名").fill("WANDB_API_KEY");
    await page.getByLabel("WANDB_API_KEY 的密钥").selectOption("wandb");
    await page.getByText("可以提交").waitFor();
    await button("rank 0 的环境变量").click();
    await page.getByLabel("rank-0.env").getByText("WORLD_SIZE", { exact: true }).waitFor();
    await unseen("the create form with its preview");
    await looksRight("create-secret");
    await button("创建并启动训练").click();
    await endsWith(FIRST, "已完成", "训练日志");
  }),

  step("group settings refer to the secret by name", async () => {
    await goTo("/workers/groups");
    await button("新建分组").first().click();
    await dialog().getByLabel("名称").fill("keyed");
    await inDialog("新建分组").click();
    await button("配置 keyed").click();
    await dialog().getByLabel("取自密钥的变量").fill("WANDB_API_KEY=wandb");
    await inDialog("保存配置").click();
    await page.getByText("配置已保存").waitFor();
    await page.reload();
    await button("配置 keyed").click();
    assert.equal(await dialog().getByLabel("取自密钥的变量").inputValue(), "WANDB_API_KEY=wandb");
    await unseen("the group's settings");
    await page.keyboard.press("Escape");
  }),

  step("in English: the value is replaced, and a clone of the task gets it", async () => {
    await goTo("/settings");
    await button("Switch to English").click();
    await page.getByRole("heading", { name: "Secrets", exact: true }).waitFor();
    await button("Set a secret").waitFor();
    await secrets("Secrets").getByRole("button", { name: "Replace", exact: true }).click();
    await dialog().getByRole("heading", { name: "New value for wandb" }).waitFor();
    await typed("Value", SECOND);
    await inDialog("Save").click();
    await dialog().waitFor({ state: "detached" });
    await secrets("Secrets")
      .getByText(/^set by /)
      .waitFor();
    await unseen("the settings after a replacement");
    await goTo(`/training/create?from=${taskId}`);
    await page.getByText("Ready to submit").waitFor();
    await unfold("Advanced");
    await openTab("env");
    await page.getByRole("group", { name: "Variables with secrets" }).waitFor();
    assert.equal(await page.getByLabel("Variable", { exact: true }).inputValue(), "WANDB_API_KEY");
    assert.equal(await page.getByLabel("Secret for WANDB_API_KEY").inputValue(), "wandb");
    await unseen("the form of a clone");
    await button("Create and start training").click();
    await endsWith(SECOND, "Succeeded", "Training log");
  }),

  step("a secret is removed after a confirmation", async () => {
    await goTo("/settings");
    await button("Remove the secret wandb").click();
    await page.getByRole("alertdialog").getByRole("button", { name: "Remove", exact: true }).click();
    await secrets("Secrets").getByText("wandb", { exact: true }).waitFor({ state: "detached" });
    await unseen("the settings after a removal");
  }),

  step("every answer that could contain the value was checked", async () => {
    const read = new Set(answers.filter(({ text }) => text).map(({ path }) => path.replace(/task-[^/]+/, "task")));
    const project = [...read].find((path) => path.startsWith("PUT /api/v1/projects/"))?.split("/")[4];
    for (const path of [
      `PUT /api/v1/projects/${project}/secrets/wandb`,
      `GET /api/v1/projects/${project}/secrets`,
      "POST /api/v1/training-tasks/preview",
      "POST /api/v1/training-tasks",
      "GET /api/v1/training-tasks/task",
      "GET /api/v1/training-tasks/task/logs",
      "stream",
    ])
      assert.ok(read.has(path), `${path} among ${[...read].sort().join(", ")}`);
  }),
]);

// From nothing to a training on 14 ranks, in the browser alone: an environment is made, a script is written in its
// JupyterLab, trained on together with two others, and all of it is gone again.
import assert from "node:assert/strict";
import { looksRight as looks, violations } from "./browser.js";
import { defineSuite, step } from "./suite.js";
import { eventually as poll } from "./polling.js";

const WAIT_MS = 120_000;
const SCRIPT = `import json, os, time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
print(f"written in the lab: rank {rank} of {world}", flush=True)
for step in range(1, 100_000):
    if rank == 0:
        print(json.dumps({"step": step, "loss": 1 / step}), flush=True)
    time.sleep(0.2)
`;
let fermi, page, lab, id;

const { journey } = defineSuite({ use: (given) => ({ fermi, page } = given) });
const open = (path) => page.goto(fermi.url + path);
const button = (name) => page.getByRole("button", { name, exact: true });
const dialog = () => page.getByRole("dialog");
const status = (text) => page.locator("h1").getByText(text, { exact: true });
const confirm = (name) => page.getByRole("alertdialog").getByRole("button", { name, exact: true }).click();
const eventually = (look, what) => poll(page, look, what, WAIT_MS);

journey("an environment, from its creation to its removal", [
  step("problems of a new environment are shown at its fields", async () => {
    await open("/environments");
    await button("新建环境").click();
    await dialog()
      .getByRole("radio", { name: /2 × A100/ })
      .check();
    await dialog().getByLabel("名称").fill("lab");
    await dialog().getByLabel("GPU 数量").fill("many");
    await dialog().getByLabel("CPU 核数").fill("-1");
    await dialog().getByRole("button", { name: "创建", exact: true }).click();
    await dialog()
      .getByText(/不大于 1024，收到的是 "many"/)
      .waitFor();
    await dialog()
      .getByText(/大于或者等于 1/)
      .waitFor();
    assert.equal(
      await page.evaluate(() => document.activeElement?.name),
      "gpuCount",
      "the first of them has the focus",
    );
    assert.deepEqual(await violations(page), [], "the dialog");
  }),

  step("it is created and runs", async () => {
    await dialog().getByLabel("GPU 数量").fill("2");
    await dialog().getByLabel("CPU 核数").fill("2");
    await dialog().getByRole("button", { name: "创建", exact: true }).click();
    await page.waitForURL(/\/environments\/env-/);
    id = page.url().split("/").pop();
    await status("运行中").waitFor({ timeout: WAIT_MS });
  }),

  step("its JupyterLab opens on its own host name, and a script is written there", async () => {
    const opened = page.context().waitForEvent("page");
    await page.getByRole("link", { name: "打开 JupyterLab", exact: true }).click();
    lab = await opened;
    lab.setDefaultTimeout(WAIT_MS);
    await lab.setViewportSize({ width: 1440, height: 900 });
    await lab.getByText("Python File", { exact: true }).click();
    assert.equal(new URL(lab.url()).hostname, `${id}.localhost`);
    await lab.locator(".jp-FileEditor .cm-content").click();
    await lab.keyboard.insertText(SCRIPT);
    await lab.keyboard.press("Control+s");
    await lab.getByRole("dialog").getByRole("textbox").fill("train.py");
    await lab.getByRole("dialog").getByRole("button", { name: "Rename and Save" }).click();
    await lab.getByRole("tab", { name: "train.py", exact: true }).waitFor();
  }),

  step("a cell runs, and the console shows the activity of its kernel", async () => {
    await lab.getByRole("button", { name: "New Launcher" }).first().click();
    await lab.locator('.jp-LauncherCard[data-category="Notebook"]:visible').first().click();
    await lab.locator(".jp-NotebookPanel .cm-content").first().click();
    await lab.getByText("Python 3 (ipykernel) | Idle", { exact: true }).waitFor();
    await lab.keyboard.insertText("import time; print('sum', 6 * 7); time.sleep(30)");
    await lab.keyboard.press("Shift+Enter");
    await lab.getByText("sum 42", { exact: true }).waitFor();
    await page.bringToFront();
    await page.getByText("Untitled.ipynb", { exact: true }).waitFor();
    await page.getByText("计算中", { exact: true }).waitFor();
    await looks(page, "environment-lab");
  }),

  step("a shell in the page sees the same files", async () => {
    await page.getByRole("tab", { name: "终端" }).click();
    await page.locator('[data-terminal="open"]').click();
    await page.keyboard.type("wc -l train.py\n");
    await page.locator(".xterm-rows > div", { hasText: /^8 train\.py/ }).waitFor();
    assert.deepEqual(await violations(page), [], "the terminal");
  }),

  step("a silent terminal shows what its shell waits for", async () => {
    await page.keyboard.type("echo 'sleep 613' | tee ~/.bashrc > ~/.zshrc; echo written\n");
    await page.locator(".xterm-rows > div", { hasText: /^written/ }).waitFor();
    await button("新开一个 shell").click();
    await page.getByRole("status").filter({ hasText: "正在等待：sleep 613" }).waitFor();
    assert.deepEqual(await violations(page), [], "the terminal");
    await page.keyboard.press("Control+c");
    await page.getByText("正在等待：").waitFor({ state: "hidden" });
    await page.keyboard.type("rm ~/.bashrc ~/.zshrc; echo removed\n");
    await page.locator(".xterm-rows > div", { hasText: /^removed/ }).waitFor();
  }),

  step("selected with two others, it trains the script on 14 ranks", async () => {
    await page.getByRole("link", { name: "在此训练", exact: true }).click();
    await page.getByLabel("任务名称").fill("fourteen");
    assert.equal(await page.getByRole("checkbox", { name: /^lab/ }).isChecked(), true, "whence one came is ticked");
    for (const name of ["llm-training-env", "nlp-research-lab"]) {
      await page.getByRole("checkbox", { name: new RegExp(`^${name}`) }).click();
    }
    await page.getByRole("radio", { name: "我的脚本" }).click();
    await page.getByLabel("训练脚本", { exact: true }).fill("train.py");
    await page.getByText("可以提交").waitFor();
    await button("创建并启动训练").click();
    await page.waitForURL(/\/training\/task-/);
    await status("训练中").waitFor({ timeout: WAIT_MS });
    await eventually(async () => (await page.getByRole("button", { name: /^rank \d+, / }).count()) === 14, "14 ranks");
    const log = page.getByRole("group", { name: "训练日志" }); // what is chosen shows its rank's last line, too
    await log
      .getByText(/"step": [1-9]/)
      .first()
      .waitFor();
    await page.getByLabel("进程", { exact: true }).selectOption("13");
    await log.getByText("written in the lab: rank 13 of 14").waitFor();
  }),

  step("an environment in use cannot be stopped or deleted", async () => {
    const task = page.url();
    await open(`/environments/${id}`);
    await page.getByText("任务用完之前").waitFor();
    await page.getByRole("link", { name: "打开 JupyterLab", exact: true }).waitFor();
    for (const name of ["停止", "删除", "重启", "调整规格"]) assert.equal(await button(name).count(), 0, name);
    await page.goto(task);
    await button("停止").click();
    await confirm("停止");
    await status("已停止").waitFor({ timeout: WAIT_MS });
  }),

  step("an exhausted quota is shown in the dialog", async () => {
    const answer = await fetch(`${fermi.url}/api/v1/projects/default/limits`, {
      method: "PUT",
      headers: { Authorization: `Bearer ${fermi.token()}`, "Content-Type": "application/json" },
      body: JSON.stringify({ maxEnvironments: 1 }),
    });
    assert.ok(answer.ok, await answer.text());
    await open("/environments");
    await button("新建环境").click();
    await dialog().getByLabel("名称").fill("one-too-many");
    await dialog().getByRole("button", { name: "创建", exact: true }).click();
    await dialog()
      .getByText(/default.*1/)
      .first()
      .waitFor();
    await page.keyboard.press("Escape");
  }),

  step("the proxy address of a stopped environment says so, and a deleted one disappears", async () => {
    await page.getByRole("link", { name: "lab", exact: true }).click();
    await button("停止").click();
    await confirm("停止");
    await status("已停止").waitFor({ timeout: WAIT_MS });
    await lab.goto(`${fermi.url}/environments/${id}/open`);
    await lab.getByText("DOOR_SHUT").waitFor();
    await page.bringToFront();
    await button("删除").click();
    await confirm("删除");
    await page.waitForURL("**/environments");
    await page.getByRole("link", { name: "lab", exact: true }).waitFor({ state: "detached", timeout: WAIT_MS });
  }),
]);

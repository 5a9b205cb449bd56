// Workers, groups and pre-flight against a real platform: hosts that obey without training, the rest is what it is.
import assert from "node:assert/strict";
import { after } from "node:test";
import { looksRight as looks } from "./browser.js";
import { hosts } from "./hosts.js";
import { defineSuite, step } from "./suite.js";
import { eventually as poll } from "./polling.js";

const WAIT_MS = 240_000;
const GPUS = { gn6: [0, 1], gn39: [0], gn40: [0], gn7: [0, 1] };
let fermi, page, joined;

after(() => joined?.stop()); // before the platform, which the suite stops
const { test, journey } = defineSuite({
  waitMs: WAIT_MS,
  use: (given) => ({ fermi, page } = given),
});

const open = (path) => page.goto(fermi.url + path);
const button = (name) => page.getByRole("button", { name, exact: true });
const dialog = () => page.getByRole("dialog");
const inDialog = (name) => dialog().getByRole("button", { name, exact: true });
const confirm = (name) => page.getByRole("alertdialog").getByRole("button", { name, exact: true }).click();
const eventually = (look, what) => poll(page, look, what, WAIT_MS);

const looksRight = (name) => looks(page, name);

async function move(group, ...ids) {
  await open("/workers");
  for (const id of ids) await page.getByRole("checkbox", { name: `选择 ${id}`, exact: true }).check();
  await button("移动到").click();
  await dialog().getByLabel("目标分组").selectOption({ label: group });
  await inDialog("移动到").click();
  await page.getByText(`已移动 ${ids.length} 个 Worker`).waitFor();
}

/** The document's columns: worker, RANK, LOCAL_RANK, NODE_RANK. */
const ranks = (group) =>
  page
    .getByRole("group", { name: `${group} 的 Worker` })
    .locator("tbody tr")
    .evaluateAll((rows) =>
      rows.map((row) =>
        [...row.cells]
          .slice(0, 4)
          .map((cell) => cell.textContent)
          .join(" "),
      ),
    );

async function ranksAre(group, ...expected) {
  await eventually(async () => JSON.stringify(await ranks(group)) === JSON.stringify(expected), expected.join(", "));
}

journey("workers, from hosts that join to a group that trains", [
  step("hosts join with a command shown once and appear with their first heartbeat", async () => {
    await open("/workers");
    await page.getByText("还没有 Worker").waitFor();
    await button("添加 Worker").first().click();
    await dialog().getByLabel("用途").fill("e2e");
    await inDialog("创建令牌").click();
    const token = await dialog().locator("code").innerText();
    assert.match(
      await dialog().locator("pre").innerText(),
      new RegExp(`fermi worker .*--server ${fermi.url} .*${token}`),
    );
    await inDialog("关闭").first().click();
    joined = await hosts(fermi.url, token, GPUS);
    await page.getByRole("row", { name: /gn7-1/ }).getByText("在线").waitFor();
    await page.getByRole("link", { name: "加入令牌" }).click();
    await page.getByRole("listitem").filter({ hasText: "e2e" }).getByText("最近一次使用").waitFor();
    assert.equal(await page.getByText(token).count(), 0);
  }),

  step("the document's first table: four workers on four nodes", async () => {
    await open("/workers/groups");
    await button("新建分组").first().click();
    await dialog().getByLabel("名称").fill("bert");
    await inDialog("新建分组").click();
    await page.getByText("分组里还没有 Worker").waitFor();
    await move("bert", "gn6-0", "gn39-0", "gn40-0", "gn7-0");
    await open("/workers/groups");
    await button("配置 bert").click();
    await dialog().getByLabel("Master 地址").fill("gn6");
    await dialog().getByLabel("World Size").fill("9");
    await dialog().getByLabel("脚本", { exact: true }).fill("train.py");
    await inDialog("保存配置").click();
    await dialog().locator('[name="worldSize"][aria-invalid="true"]').waitFor();
    await looksRight("group-settings");
    await dialog().getByLabel("World Size").fill("4");
    await inDialog("保存配置").click();
    await ranksAre("bert", "gn6-0 0 0 0", "gn39-0 1 0 1", "gn40-0 2 0 2", "gn7-0 3 0 3");
  }),

  step("the environment variables of a worker's process are shown", async () => {
    await open("/workers?group=none");
    await page.getByRole("checkbox", { name: "选择 gn6-1", exact: true }).waitFor();
    assert.equal(await page.getByRole("checkbox", { name: "选择 gn6-0", exact: true }).count(), 0);
    await page.getByLabel("分组", { exact: true }).selectOption({ label: "bert" });
    await button("查看 gn40-0 的环境变量").click();
    const shown = await dialog().locator("pre").innerText();
    for (const line of [
      "MASTER_ADDR=gn6",
      "MASTER_PORT=29500",
      "WORLD_SIZE=4",
      "RANK=2",
      "LOCAL_RANK=0",
      "NODE_RANK=2",
    ])
      assert.ok(shown.includes(`export ${line}\n`), `${line} in ${shown}`);
    await looksRight("worker-environment");
  }),

  step("the document's second table: two workers on each of two nodes", async () => {
    await move("未分组", "gn39-0", "gn40-0");
    await move("bert", "gn6-1", "gn7-1");
    await open("/workers/groups");
    await ranksAre("bert", "gn6-0 0 0 0", "gn6-1 1 1 0", "gn7-0 2 0 1", "gn7-1 3 1 1");
  }),

  step("a group is started as a training task and stopped", async () => {
    await button("启动").click();
    await confirm("启动");
    await page.locator("section h2").getByText("训练中", { exact: true }).waitFor();
    await looksRight("groups");
    await open("/workers");
    await page.getByRole("row", { name: /gn7-1/ }).getByText("运行中", { exact: true }).last().waitFor();
    await page.getByRole("row", { name: /gn7-1/ }).getByRole("meter").waitFor();
    await looksRight("workers");
    await page.getByRole("row", { name: /gn6-0/ }).locator('a[href^="/training/"]').last().click();
    await page.locator("h1").getByText("训练中", { exact: true }).waitFor();
    assert.doesNotMatch(await page.locator("main").innerText(), /null|undefined/);
    await looksRight("task-of-group");
    await open("/workers/groups");
    await button("停止").click();
    await confirm("停止");
    await page.locator("section h2").getByText("已停止", { exact: true }).waitFor();
  }),
]);

test("a pre-flight test of two environments updates to its verdict", async () => {
  await open("/environments/env-001");
  await page.getByRole("link", { name: "运行预检" }).click();
  await page.getByRole("checkbox", { name: /cv-experiment-env/ }).check();
  await looksRight("preflight-create");
  await button("开始预检").click();
  await page.waitForURL(/\/preflight\/(?!create)/);
  await page.locator("h1").getByText("已完成", { exact: true }).waitFor();
  const square = (name) => page.getByRole("grid").getByRole("button", { name });
  await square(/^节点 pytorch-dev-env/).click();
  await page.keyboard.press("ArrowRight");
  await page.getByRole("region", { name: "详情" }).getByText("pytorch-dev-env → cv-experiment-env").waitFor();
  await looksRight("preflight");
  const [file] = await Promise.all([page.waitForEvent("download"), button("下载 JSON").click()]);
  assert.match(file.suggestedFilename(), /\.json$/);
  await open("/preflight");
  await page.getByRole("link", { name: /pytorch-dev-env/ }).waitFor();
});

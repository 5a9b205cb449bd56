// Sharing the machines against a real platform: who waits, in which order, what is set aside, what may be used, and what
// it cost.
import assert from "node:assert/strict";
import { looksRight as looks } from "./browser.js";
import { defineSuite, once, step } from "./suite.js";
import { eventually as poll } from "./polling.js";

const WAIT_MS = 60_000;
const HELD = "env-001";
let fermi, page;

const { test, journey } = defineSuite({
  waitMs: WAIT_MS,
  use: (given) => ({ fermi, page } = given),
});

const open = (path) => page.goto(fermi.url + path);
const button = (name) => page.getByRole("button", { name, exact: true });
const dialog = () => page.getByRole("dialog");
const inDialog = (name) => dialog().getByRole("button", { name, exact: true });
const eventually = (look, what) => poll(page, look, what, WAIT_MS);

const looksRight = (name) => looks(page, name);

async function api(path, body) {
  const answer = await fetch(`${fermi.url}/api/v1${path}`, {
    method: body ? "POST" : "GET",
    headers: { Authorization: `Bearer ${fermi.token()}`, "Content-Type": "application/json" },
    ...(body && { body: JSON.stringify(body) }),
  });
  const { data, message } = await answer.json();
  assert.ok(answer.ok, `${path}: ${answer.status} ${message}`);
  return data;
}

const submit = (taskName, more = {}) =>
  api("/training-tasks", {
    taskName,
    datasetId: "dataset-001",
    datasetVersionId: "version-001",
    modelId: "model-001",
    launchMode: "existing",
    environmentIds: [HELD],
    ...more,
  });

const waiting = () => page.getByRole("group", { name: "排队" }).locator("tbody td:nth-child(2) > a").allInnerTexts();

const waitingIs = (...names) =>
  eventually(async () => JSON.stringify(await waiting()) === JSON.stringify(names), names.join(", "));

/** One task that holds an environment, and four that wait for it. */
const submitWaiting = once(async () => {
  const script = fermi.write("steady.py", "import time\ntime.sleep(3600)\n");
  await submit("holds-it", { entrypoint: { script, args: [] }, maxRunSeconds: 7200 });
  await eventually(async () => (await api(`/dev-environments/${HELD}`)).heldBy, "the environment held");
  for (const name of ["waits-1", "waits-2", "waits-3"]) await submit(name);
  await submit("waits-urgently", { priority: "urgent" });
});

journey("the queue", [
  step("tasks that wait for one environment are queued and show what must end first", async () => {
    await submitWaiting();
    await open("/queue");
    await waitingIs("waits-urgently", "waits-1", "waits-2", "waits-3");
    await page.getByRole("link", { name: "holds-it" }).last().waitFor();
    await looksRight("queue");
  }),

  step("the queue is reordered with the keyboard and by dragging", async () => {
    await button("上移 waits-2").press("Enter");
    await waitingIs("waits-urgently", "waits-2", "waits-1", "waits-3");
    const row = (name) =>
      page.locator("tbody tr", { has: page.locator("td:nth-child(2) > a", { hasText: new RegExp(`^${name}$`) }) });
    // The page shows a move before it is asked for, and a page that is loaded again asks for nothing any more.
    const stored = (name, behind) => row(name).getByText(behind).and(page.locator(":visible")).first().waitFor();
    await stored("waits-1", "waits-2");
    await row("waits-3").dragTo(row("waits-2"));
    await waitingIs("waits-urgently", "waits-3", "waits-2", "waits-1");
    await stored("waits-2", "waits-3");
    await page.reload();
    await waitingIs("waits-urgently", "waits-3", "waits-2", "waits-1");
  }),
]);

test("a reservation is made in the calendar, validated and shown on the timeline", async () => {
  await open("/queue");
  await submitWaiting();
  await open("/queue/reservations");
  await page.getByText("这段时间没有预留，也没有维护").waitFor();
  await button("新建预留").first().click();
  await inDialog("保存").press("Enter");
  await dialog().locator('[aria-invalid="true"]').waitFor();
  await looksRight("reservation-form");
  await dialog()
    .getByRole("checkbox", { name: /cv-experiment-env/ })
    .check();
  await dialog().getByLabel("备注").fill("论文截止");
  await inDialog("保存").press("Enter");
  await page.getByText("预留已保存").waitFor();
  await page.getByRole("button", { name: "修改预留“论文截止”" }).waitFor();
  await looksRight("reservations");
  await page.getByLabel("视图").selectOption("week");
  await looksRight("reservations-week");
  await open("/queue/timeline?search=env");
  await page
    .getByTitle(/^预留: /)
    .first()
    .waitFor();
  await page.getByRole("link", { name: /^占用: holds-it/ }).waitFor();
  await page.getByRole("link", { name: /^下一个: waits-/ }).waitFor();
  await looksRight("timeline");
  await button("表格").click();
  await page.getByRole("columnheader", { name: "用途" }).waitFor();
  await looksRight("timeline-table");
});

test("a project gets limits and a budget, and usage has a cost once a price is set", async () => {
  await open("/settings");
  await submitWaiting();
  await button("修改配额").first().click();
  await dialog().locator("[name=mostGpus]").fill("many");
  await inDialog("保存").press("Enter");
  await dialog().locator('[name=mostGpus][aria-invalid="true"]').waitFor();
  await looksRight("limits-form");
  await dialog().locator("[name=mostGpus]").fill("16");
  await dialog().locator("[name=budget]").fill("1000");
  await inDialog("保存").press("Enter");
  await page.getByRole("meter", { name: "占用的 GPU" }).waitFor();
  await page.locator("summary", { hasText: "成员的配额与用量" }).first().click();
  await looksRight("limits");
  await open("/usage/prices");
  await button("添加价格").first().click();
  await dialog().getByLabel("每 GPU 小时").fill("12.5");
  await inDialog("保存").press("Enter");
  await page.getByText("¥12.50").waitFor();
  await looksRight("prices");
  await open("/usage?by=task");
  await page.getByRole("link", { name: "holds-it" }).waitFor();
  await looksRight("usage");
  const [file] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("link", { name: "下载 CSV" }).click(),
  ]);
  assert.match(file.suggestedFilename(), /^usage-task-.*\.csv$/);
});

test("a timeline of a thousand environments renders a few rows", async (context) => {
  fermi.seed(1000);
  context.after(() => fermi.seed(0, "unseed.py"));
  await open("/queue/timeline");
  await page.getByText("node-00000", { exact: true }).waitFor();
  assert.ok((await page.getByRole("group", { name: "环境时间线" }).getByRole("link").count()) < 200);
  await page.getByLabel("按环境名称或编号搜索").fill("node-00999");
  await page.getByText("node-00999", { exact: true }).waitFor();
});

test("the platform chooses environments, and the task is paused and resumed", async () => {
  await open("/training/create");
  await page.locator('[name="taskName"]').fill("chosen");
  await button("为我选择").click();
  await page.locator('[name="distributedConfig.select.totalGpus"]').fill("4");
  await page.getByText("现在空闲：创建后立即开始。").waitFor();
  await page.getByRole("checkbox", { name: /llm-training-env/, checked: true }).waitFor();
  await looksRight("create-choose-for-me");
  await page.locator("summary", { hasText: "高级" }).click();
  await page.locator('[name="hyperparameters.totalSteps"]').fill("100000");
  await page.getByRole("tab", { name: "排队与时长" }).click();
  await page.locator('[name="priority"]').selectOption("high");
  await button("创建并启动训练").click();
  await page.waitForURL(/\/training\/task-/);
  const id = page.url().split("/").at(-1);
  await eventually(async () => (await api(`/training-tasks/${id}`)).status === "running", "it runs");
  await eventually(async () => (await api(`/training-tasks/${id}`)).step > 0, "it has made a step");
  await button("暂停").click();
  await page.getByRole("alertdialog").getByRole("button", { name: "暂停", exact: true }).click();
  await page.getByText("已暂停", { exact: true }).first().waitFor();
  await eventually(async () => (await api(`/training-tasks/${id}`)).status === "queued", "it rests");
  const at = (await api(`/training-tasks/${id}`)).nodes[0].environmentId;
  assert.equal((await api(`/dev-environments/${at}`)).heldBy, null);
  await button("恢复").first().click();
  await eventually(async () => (await api(`/training-tasks/${id}`)).status === "running", "it goes on");
  await page.getByText("用量与费用").first().waitFor();
  await api(`/training-tasks/${id}/stop`, {});
});

test("scheduling in English", async () => {
  await open("/queue");
  await button("Switch to English").click();
  for (const [path, name] of [
    ["/queue", "queue"],
    ["/queue/timeline?search=env", "timeline"],
    ["/queue/reservations", "reservations"],
    ["/usage", "usage"],
    ["/settings", "limits"],
  ]) {
    await open(path);
    await page.locator("main h1").waitFor();
    await page.waitForLoadState("networkidle");
    await looksRight(`en-${name}`);
    assert.doesNotMatch(await page.locator("main").innerText(), /null|undefined|NaN/);
  }
});

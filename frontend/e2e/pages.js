// Tests of the pages around tasks, on the same platform as those of console.test.js.
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { shootByMedia, THEMES, violations } from "./browser.js";

const DOCS = fileURLToPath(new URL("../../docs", import.meta.url));
const LINES = 100_000;
const CHATTY = `import os, time
print("waits for a reader", flush=True)
while not os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), "read")):
    time.sleep(0.05)
for n in range(${LINES}):
    print(f"line {n}: the quick brown fox jumps over the lazy dog")
print('{"step": 1, "loss": 1.0}', flush=True)
time.sleep(3600)
`;

const SLEEPS = "import time\ntime.sleep(3600)\n";

/** `now()` gives { page, fermi }; `looksRight` and `eventually` are the console's tests'. */
export function pageTests({ test, now, looksRight, eventually, trainingMs }) {
  const open = (path) => now().page.goto(now().fermi.url + path);
  const button = (name) => now().page.getByRole("button", { name, exact: true });
  const confirm = (name) => now().page.getByRole("alertdialog").getByRole("button", { name, exact: true }).click();
  const api = async (path, init = {}) => {
    const headers = { Authorization: `Bearer ${now().fermi.token()}`, "Content-Type": "application/json" };
    const answer = await fetch(`${now().fermi.url}/api/v1${path}`, { ...init, headers });
    const { data } = await answer.json();
    assert.ok(answer.ok, `${path}: ${answer.status}`);
    return data;
  };
  const submit = (name, environmentIds, more) =>
    api("/training-tasks", {
      method: "POST",
      body: JSON.stringify({
        taskName: name,
        datasetId: "dataset-001",
        datasetVersionId: "version-001",
        modelId: "model-001",
        launchMode: "existing",
        environmentIds,
        ...more,
      }),
    });

  const stop = (id) => api(`/training-tasks/${id}/stop`, { method: "POST", body: "{}" });

  const looksLikeAdmin = async (name) => {
    const { page } = now();
    for (const colorScheme of THEMES) {
      await page.emulateMedia({ colorScheme });
      await page.reload();
      assert.deepEqual(await violations(page), [], `${name}, ${colorScheme}`);
    }
    await shootByMedia(page, name);
  };

  test("settings: a token is shown once and works until it is revoked", async () => {
    const { page } = now();
    await open("/settings");
    await button("创建令牌").click();
    await page.getByLabel("用途").fill("e2e");
    await page.getByRole("dialog").getByRole("button", { name: "创建", exact: true }).click();
    const token = await page.locator("code").innerText();
    assert.match(token, /^fermi_/);
    await looksRight("settings");
    await page.reload();
    await page.getByText("e2e", { exact: true }).waitFor();
    assert.equal(await page.getByText(token).count(), 0);
    const ask = () => fetch(`${now().fermi.url}/api/v1/auth/me`, { headers: { Authorization: `Bearer ${token}` } });
    assert.equal((await ask()).status, 200);
    await page.getByRole("listitem").filter({ hasText: "e2e" }).getByRole("button", { name: "撤销" }).click();
    await confirm("撤销");
    await page.getByText("e2e", { exact: true }).waitFor({ state: "detached" });
    assert.equal((await ask()).status, 401);
  });

  test("environments are listed, filtered by address, cordoned and uncordoned", async () => {
    const { page } = now();
    await open("/environments");
    await page.getByRole("link", { name: "nlp-research-lab", exact: true }).waitFor();
    await looksRight("environments");
    await page.getByLabel("可用区", { exact: true }).selectOption({ label: "北京可用区A" });
    await page.getByRole("link", { name: "nlp-research-lab", exact: true }).waitFor({ state: "detached" });
    await page.getByRole("link", { name: "cv-experiment-env", exact: true }).click();
    await button("暂停调度").click();
    await confirm("暂停调度");
    await page.locator("h1").getByText("暂停调度").waitFor();
    await looksRight("environment");
    await button("恢复调度").click();
    await confirm("恢复调度");
    await page.locator("h1").getByText("暂停调度").waitFor({ state: "detached" });
  });

  test("a dataset is added by path, and its status updates to ready", async () => {
    const { page } = now();
    await open("/datasets");
    await button("添加数据集").click();
    await page.getByLabel("名称", { exact: true }).fill("documents");
    await page.getByLabel("服务器上的路径").fill("/no/such/folder");
    const add = page.getByRole("dialog").getByRole("button", { name: "添加数据集" });
    await add.click();
    await page.locator('[aria-invalid="true"]').waitFor();
    await page.getByLabel("服务器上的路径").fill(DOCS);
    await add.click();
    const card = page.locator("section", { has: page.getByRole("heading", { name: "documents" }) });
    await card.getByText("可用", { exact: true }).waitFor();
    await looksRight("datasets");
  });

  test("models and zones are listed", async () => {
    const { page } = now();
    await open("/models");
    await page.getByRole("heading", { name: "gpt-small" }).waitFor();
    await page.locator("summary").first().click();
    await looksRight("models");
    await open("/zones");
    await page.getByRole("link", { name: "北京可用区A" }).waitFor();
    await looksRight("zones");
  });

  test("a log of 100,000 lines is read, followed and searched with few of them in the page", async () => {
    const { page, fermi } = now();
    const script = fermi.write("chatty.py", CHATTY);
    const { taskId } = await submit("e2e-chatty", ["env-local"], { entrypoint: { script, args: [] } });
    await open(`/training/${taskId}`);
    const first = page.getByRole("group", { name: "训练日志" }).getByText("waits for a reader");
    await first.waitFor({ timeout: trainingMs }); // a reader who comes later begins with the last lines
    fermi.write("read", "");
    await eventually(async () => /100,?00\d 行/.test(await page.locator("main").innerText()), "100,000 lines");
    const log = page.getByRole("group", { name: "训练日志" });
    await log.getByText('{"step": 1').waitFor();
    assert.ok((await log.locator("> div > div").count()) < 200);
    const frames = await scrolling(page);
    console.log(
      `100,000 lines, scrolled through: ${frames.count} frames, longest ${frames.longest} ms, median ${frames.median} ms`,
    );
    const began = performance.now();
    await page.getByLabel("在日志中查找").fill("line 99999:");
    await page.getByText("1 行匹配").waitFor();
    console.log(`found in ${Math.round(performance.now() - began)} ms`);
    await log.locator("mark").waitFor();
    await page.getByLabel("在日志中查找").fill("");
    await page.getByRole("tab", { name: "命令与 YAML" }).click();
    await page.getByRole("tabpanel").locator("pre").waitFor();
    await looksRight("task-reuse");
    await stop(taskId);
  });

  test("several tasks are stopped from the list", async () => {
    const { page } = now();
    const script = now().fermi.write("sleeps.py", SLEEPS);
    await submit("list-first", ["env-local"], { entrypoint: { script, args: [] } });
    await submit("list-second", ["env-local"], {});
    await open("/training?search=list-");
    await page.getByRole("checkbox", { name: "选择 list-first" }).check();
    await page.getByRole("checkbox", { name: "选择 list-second" }).check();
    await looksRight("tasks-selected");
    await button("停止所选").click();
    await confirm("停止");
    await page.getByText("正在停止", { exact: true }).first().waitFor();
    for (const name of ["list-first", "list-second"]) {
      const row = page.getByRole("row", { name: new RegExp(name) });
      await row.getByText("已停止", { exact: true }).waitFor({ timeout: trainingMs });
    }
  });

  test("operators: overview, plan of a task and draining of an environment", async () => {
    const { page, fermi } = now();
    const script = fermi.write("sleeps.py", SLEEPS);
    const { taskId } = await submit("for-operators", ["env-local"], { entrypoint: { script, args: [] } });
    await open(`/training/${taskId}`); // where a failure to start is explained
    await eventually(async () => (await api(`/training-tasks/${taskId}`)).status === "running", "a running task");
    await open("/admin/");
    await page.getByRole("heading", { name: "任务状态" }).waitFor();
    await looksLikeAdmin("admin-overview");
    await open("/admin/training/task/");
    await page.getByRole("link", { name: "for-operators" }).first().waitFor();
    await looksLikeAdmin("admin-tasks");
    await page.getByRole("link", { name: "for-operators" }).first().click();
    await page.getByText("生成的文件").waitFor();
    await looksLikeAdmin("admin-task");
    await open("/admin/clusters/devenvironment/");
    await page
      .getByRole("row", { name: /env-004/ })
      .getByRole("checkbox")
      .check();
    await page.locator('select[name="action"]').selectOption("drain");
    await page
      .locator('button[name="index"], button[type="submit"]')
      .filter({ hasText: /执行|Run/ })
      .first()
      .click();
    await page.getByText(/已排空: 1/).waitFor();
    await looksLikeAdmin("admin-environments");
    await api("/dev-environments/env-004", { method: "PATCH", body: JSON.stringify({ cordoned: false }) });
    await stop(taskId);
  });
}

/** Scrolls the log from end to start in 120 jumps and says how long its frames took. */
function scrolling(page) {
  return page.getByRole("group", { name: "训练日志" }).evaluate(async (log) => {
    const took = [];
    let last = performance.now();
    for (let jump = 120; jump >= 0; jump--) {
      log.scrollTop = (log.scrollHeight * jump) / 120;
      const at = await new Promise(requestAnimationFrame);
      took.push(at - last);
      last = at;
    }
    took.sort((a, b) => a - b);
    return {
      count: took.length,
      longest: Math.round(took.at(-1)),
      median: Math.round(took[took.length >> 1]),
    };
  });
}

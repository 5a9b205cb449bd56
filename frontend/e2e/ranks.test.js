// The heat map of a real task of 14 ranks: what they use, the inspector in sight, and how each of them ended.
import assert from "node:assert/strict";
import { looksRight as looks } from "./browser.js";
import { createTask, defineSuite } from "./suite.js";
import { eventually as poll } from "./polling.js";

const WAIT_MS = 120_000;
const RANKS = 14;
const FAILS = 5;
const ORDER = "fail";
const LIGHT = `import os, sys, time
while True:
    print("still here", flush=True)
    time.sleep(1)
    if os.environ["RANK"] == "${FAILS}" and os.path.exists(os.path.join(os.path.dirname(__file__), "${ORDER}")):
        sys.exit(3)
`;
let fermi, page;

const { test } = defineSuite({ waitMs: WAIT_MS, use: (given) => ({ fermi, page } = given) });

const eventually = (look, what) => poll(page, look, what, WAIT_MS);
const looksRight = (name) => looks(page, name);
const cells = (name) => page.getByRole("button", { name });
const inspector = () => page.getByRole("region", { name: "所选的 rank" });
const insight = () => inspector().innerText();

const submit = (script) =>
  createTask(fermi, "e2e-ranks", {
    environmentIds: ["env-002", "env-003", "env-005"],
    distributedConfig: { masterNode: "env-002", framework: "pytorch-ddp" },
    entrypoint: { script, args: [] },
    maxRestarts: 0,
  });

let made = 0;
let running, failed;

/** Opens a task whose ranks all run; the one of another test, if it still does. */
async function openRunning() {
  running ??= await submit(fermi.write(`ranks-${++made}/light.py`, LIGHT));
  await page.goto(`${fermi.url}/training/${running}`);
  await eventually(async () => (await cells(/^rank \d+, 运行/).count()) === RANKS, `${RANKS} running ranks`);
}

/** Opens a task of which one rank has failed. */
async function openFailed() {
  if (!failed) {
    await openRunning();
    fermi.write(`ranks-${made}/${ORDER}`, "");
    [failed, running] = [running, undefined];
  }
  await page.goto(`${fermi.url}/training/${failed}`);
  await page.locator("h1").getByText("失败", { exact: true }).waitFor();
}

test("each rank is a cell with its state", async () => {
  await openRunning();
  await eventually(async () => (await cells(/^rank \d+, 运行$/).count()) === RANKS, `${RANKS} running ranks`);
});

test("cells are coloured by usage once it is measured", async () => {
  await openRunning();
  await eventually(async () => (await page.locator('option[value="gpu"]').count()) === 1, "a measured GPU");
  await page.getByLabel("着色依据").selectOption("gpu");
  await eventually(async () => (await cells(/^rank \d+, 运行, GPU 利用率 \d+%$/).count()) === RANKS, "all values");
  await looksRight("task-ranks");
});

test("hovering previews a rank, clicking selects it and arrow keys move", async () => {
  await openRunning();
  await cells(/^rank 9,/).click();
  await cells(/^rank 3,/).hover();
  await eventually(async () => /^rank 3 ·/.test(await insight()), "a preview of rank 3");
  await inspector().hover();
  await eventually(async () => /^rank 9 ·/.test(await insight()), "the kept rank 9");
  await eventually(async () => (await insight()).includes("still here"), "the last line of its log");
  await cells(/^rank 9,/).focus();
  await page.keyboard.press("ArrowUp");
  const above = await page.evaluate(() => document.activeElement.dataset.rank);
  assert.ok(Number(above) < 6, `the node above has ranks 2 to 5, not ${above}`);
});

test("on a phone the inspector stays visible while the map is scrolled", async () => {
  await openRunning();
  const before = page.viewportSize();
  await page.setViewportSize({ width: 390, height: 500 });
  for (const rank of [0, RANKS - 1]) {
    await cells(new RegExp(`^rank ${rank},`)).evaluate((cell) => cell.scrollIntoView({ block: "center" }));
    const { y, height } = await inspector().boundingBox();
    assert.ok(y >= 0 && y + height <= 500, `rank ${rank} in the middle: ${y} + ${height}`);
  }
  await page.setViewportSize(before);
});

test("the failed rank differs from those that the platform ended", async () => {
  await openFailed();
  await cells(`rank ${FAILS}, 最先失败`).waitFor();
  await eventually(async () => (await cells(/^rank \d+, 由平台结束$/).count()) === RANKS - 1, "the others ended");
  assert.equal(await page.locator("[data-rank].rounded-full").getAttribute("data-rank"), String(FAILS));
  await eventually(async () => (await insight()).startsWith(`rank ${FAILS} · 最先失败`), "the failed rank, kept");
  assert.match(await insight(), /退出码 3/);
  await looksRight("task-ranks-failed");
});

/** How far the page moved by itself while it came, as browsers measure it: https://web.dev/articles/cls (good: ≤ 0.1). */
const shift = () =>
  page.evaluate(
    () =>
      new Promise((found) => {
        const watcher = new PerformanceObserver((list) => {
          watcher.disconnect();
          found(list.getEntries().reduce((sum, { value }) => sum + value, 0));
        });
        watcher.observe({ type: "layout-shift", buffered: true });
        setTimeout(() => found(0), 1000); // no entry: nothing moved
      }),
  );

test("on a phone the page of a failed task does not shift while it loads", async () => {
  await openFailed();
  const before = page.viewportSize();
  await page.setViewportSize({ width: 390, height: 900 });
  await page.reload();
  await page.getByRole("region", { name: "当前状况与原因" }).waitFor();
  await eventually(async () => (await insight()).startsWith(`rank ${FAILS} · 最先失败`), "the failed rank, kept");
  assert.ok((await shift()) < 0.1, `moved by ${await shift()}`);
  await page.setViewportSize(before);
});

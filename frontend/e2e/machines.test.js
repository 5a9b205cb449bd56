// What machines did, in a browser: of a task of 14 ranks that failed, of one of 512 ranks, of an environment and a worker.
import assert from "node:assert/strict";
import { looksRight as looks } from "./browser.js";
import { defineSuite } from "./suite.js";
import { eventually as poll } from "./polling.js";

const WAIT_MS = 60_000;
const HOLDERS = 8;
let fermi, page;

const { test } = defineSuite({
  waitMs: WAIT_MS,
  prepare: (fermi) => fermi.seed(HOLDERS, "seed-machines.py"),
  use: (given) => ({ fermi, page } = given),
});

const open = (path) => page.goto(fermi.url + path);
const looksRight = (name) => looks(page, name);
const chart = (name) => page.getByRole("img", { name: new RegExp(`^${name}`) });
const figure = (name) => page.locator("figure", { has: chart(name) });
const entries = (name) => figure(name).getByRole("listitem").allInnerTexts();
const caption = (name) => figure(name).locator("figcaption");
const eventually = (look, what) => poll(page, look, what, WAIT_MS);

async function openTask(id) {
  await open(`/training/${id}`);
  await page.getByRole("tab", { name: "机器" }).click();
  await chart("GPU 利用率").waitFor();
}

/** Where the axis of time is, which is what the pointer hears of. */
const plot = async (name) => {
  await chart(name).scrollIntoViewIfNeeded();
  return chart(name).locator(".u-over").boundingBox();
};

async function pointAt(name, share) {
  const { x, y, width, height } = await plot(name);
  await page.mouse.move(x + share * width, y + height / 2);
}

async function drag(name, from, to) {
  const { x, y, width, height } = await plot(name);
  await page.mouse.move(x + from * width, y + height / 2);
  await page.mouse.down();
  await page.mouse.move(x + to * width, y + height / 2, { steps: 4 });
  await page.mouse.up();
}

test("all charts of 14 ranks show names and values at the same moment", async () => {
  await openTask("task-fourteen");
  await chart("损失$").waitFor();
  const newest = await entries("GPU 利用率");
  assert.equal(newest.length, 14);
  assert.ok(
    newest.every((text) => /^Rank \d+\s+\d+(\.\d+)? %$/.test(text)),
    newest.join(", "),
  );
  const height = (await figure("GPU 功耗").boundingBox()).height;
  await pointAt("GPU 利用率", 0.7);
  await eventually(async () => !/最新/.test(await caption("GPU 功耗").innerText()), "the cursor in the other charts");
  assert.match(await caption("GPU 功耗").innerText(), /第 [\d,]+ 步/);
  assert.notDeepEqual(await entries("GPU 利用率"), newest);
  assert.equal((await figure("GPU 功耗").boundingBox()).height, height);
  await pointAt("GPU 利用率", 0.45); // between the attempts nothing was measured
  await eventually(async () => (await entries("GPU 利用率")).every((text) => text.endsWith("–")), "a gap");
  await page.mouse.move(0, 0);
  await looksRight("machines-of-a-task");
});

test("a selected time range stays in the address and after a tab change", async () => {
  await openTask("task-fourteen");
  await drag("GPU 利用率", 0.6, 0.8);
  await page.waitForURL(/from=\d+&to=\d+/);
  const zoomed = page.url();
  await page.getByRole("tab", { name: "事件" }).click();
  await page.getByRole("tab", { name: "机器" }).click();
  await chart("GPU 利用率").waitFor();
  assert.equal(page.url(), zoomed);
  await page.getByLabel("横轴显示步数").check();
  await looksRight("machines-by-steps");
  await page.getByLabel("横轴显示步数").uncheck();
  await page.getByRole("button", { name: "显示全部" }).click();
  await page.waitForURL((url) => !url.searchParams.has("from"));
});

test("charts, nodes and ranks can be selected, and charts are remembered", async () => {
  await openTask("task-fourteen");
  const choose = page.locator("summary", { hasText: "选择" });
  await choose.click();
  await page.getByRole("button", { name: "GPU 降速" }).click();
  await page.getByLabel("Rank", { exact: true }).fill("3-5,99");
  await page
    .getByRole("alert")
    .getByText(/0 到 13/)
    .waitFor();
  await page.getByLabel("Rank", { exact: true }).fill("3-5");
  await page.waitForURL(/ranks=3-5/);
  await eventually(async () => (await entries("GPU 利用率")).length === 3, "three ranks");
  await looksRight("machines-chosen");
  await page.reload();
  await page.getByRole("tab", { name: "机器" }).click();
  await chart("GPU 降速").waitFor();
  assert.equal((await entries("GPU 降速")).length, 3);
  await choose.click();
  await page.getByRole("button", { name: "恢复默认" }).click();
  await eventually(async () => (await chart("GPU 降速").count()) === 0, "the charts as at first");
});

test("the slow one of 512 ranks is named", async () => {
  await openTask("task-wide");
  assert.ok((await entries("GPU 利用率")).some((text) => /^最小\s+Rank 300\s/.test(text)));
  await looksRight("machines-of-512-ranks");
});

/** Both stand on the same moments: to a pixel. */
async function isInLine() {
  const strip = await page.getByRole("region", { name: "使用者" }).locator(".bg-sunken").first().boundingBox();
  const { x, width } = await plot("GPU 显存");
  const inColumn = (at) => Math.abs(at - x) <= 1.5;
  assert.ok(inColumn(strip.x) && Math.abs(strip.width - width) <= 2, `${JSON.stringify(strip)} and ${x}, ${width}`);
}

test("charts of an environment show its tasks on the time axis", async () => {
  await open("/environments/env-worker-00");
  await chart("GPU 利用率").waitFor();
  const tasks = page.getByRole("region", { name: "使用者" });
  assert.equal(await tasks.locator("[title]").count(), HOLDERS);
  await isInLine();
  await page.getByRole("button", { name: "天", exact: true }).click();
  await page.waitForURL(/range=day/);
  await page.getByRole("button", { name: "小时", exact: true }).click();
  await looksRight("environment-machines");
  await page.setViewportSize({ width: 390, height: 900 });
  await isInLine();
  await page.setViewportSize({ width: 1440, height: 900 });
});

test("the page of a worker shows its tasks", async () => {
  await open("/workers");
  await page.getByRole("link", { name: "gn6-0" }).click();
  await page.waitForURL("**/workers/gn6-0");
  await chart("GPU 利用率").waitFor();
  assert.equal((await entries("GPU 利用率")).length, 1);
  await isInLine();
  await looksRight("worker");
  await page.getByRole("button", { name: "English" }).click();
  await page.getByRole("img", { name: /^GPU utilisation/ }).waitFor();
  await looksRight("worker-english");
});

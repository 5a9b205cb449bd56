// The overview of 1,000 nodes and 10,000 tasks: everything is counted, nothing is cut, and each entry leads on.
import assert from "node:assert/strict";
import { looksRight as looks } from "./browser.js";
import { defineSuite } from "./suite.js";

const WAIT_MS = 60_000;
const NODES = 1000;
const OWN = 3;
let fermi, page;

const { test } = defineSuite({
  waitMs: WAIT_MS,
  prepare: (fermi) => {
    fermi.seed(NODES, "seed-fleet.py");
    fermi.seed(OWN, "seed-own.py");
  },
  use: (given) => ({ fermi, page } = given),
});

const open = (path) => page.goto(fermi.url + path);
const looksRight = (name) => looks(page, name);
const region = (name) => page.locator("section", { has: page.getByRole("heading", { name }) });
const entries = () => region("需要处理").getByRole("list").locator("> li");

test("an operator's overview counts all GPUs and alerts", async () => {
  await open("/");
  await page.waitForURL("**/overview");
  await page.getByRole("link", { name: /^GPU 总数: 8,0\d\d$/ }).waitFor();
  await page.getByRole("button", { name: /环境异常 6\d/ }).waitFor();
  assert.equal(await entries().count(), 12);
  await region("失败").getByText("异常偏多").first().waitFor();
  await looksRight("overview");
});

test("alerts of a kind are paged, and the address can be shared", async () => {
  await open("/overview");
  await page.getByRole("button", { name: /环境异常/ }).click();
  await page.waitForURL(/kind=environment_unhealthy/);
  for (let at = 2; at <= 6; at++) {
    await region("需要处理").getByRole("button", { name: "下一页" }).click();
    await page.waitForURL(new RegExp(`page=${at}`));
  }
  await page.reload();
  await region("需要处理").getByText("第 6 / 6 页").waitFor();
  const last = entries().last().getByRole("link").first();
  assert.match(await last.getAttribute("href"), /^\/environments\/env-/);
  await last.click();
  await page.waitForURL(/\/environments\/env-/);
});

test("a switch filters the user's own tasks", async () => {
  await open("/overview");
  await page.getByRole("button", { name: "我的", exact: true }).click();
  await page.waitForURL(/view=mine/);
  await page.getByRole("link", { name: `等待中: ${OWN}` }).waitFor();
  await region("剩余额度").getByRole("heading", { level: 3 }).first().waitFor();
  const mine = region("我运行中和等待中的任务").getByRole("listitem");
  await mine.nth(2 * OWN - 1).waitFor();
  assert.equal(await mine.count(), 2 * OWN);
  await looksRight("overview-mine");
});

test("the overview in English can be filtered by zone and GPU type", async () => {
  await open("/overview?by=people&span=month");
  await page.getByRole("button", { name: "Switch to English" }).click();
  await page.getByRole("heading", { name: "Needs attention" }).waitFor();
  await page.getByLabel("GPU type").selectOption("H100");
  await page.getByRole("link", { name: /^GPUs: 2,0\d\d$/ }).waitFor();
  await looksRight("overview-english");
  await open("/overview?view=mine");
  await page.getByRole("heading", { name: "Remaining quota" }).waitFor();
  await looksRight("overview-mine-english");
});

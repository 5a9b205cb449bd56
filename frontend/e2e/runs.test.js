// The table of runs, on a platform with real training: found, compared with a baseline, grouped, tagged and saved.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { looksRight } from "./browser.js";
import { eventually } from "./polling.js";
import { createTask, defineSuite, once } from "./suite.js";

const RATES = [0.01, 0.02, 0.03];
const SCRIPT = `import json, sys
rate = float(sys.argv[1])
for step in range(1, 31):
    print(json.dumps({"step": step, "loss": 3 - rate * step, "val_loss": 3.2 - rate * step}), flush=True)
`;

const WAIT_MS = 60_000;
const TRAINING_MS = 300_000;

let now;
const { test } = defineSuite({ use: (given) => (now = given) });

const table = (query = "") => `${now.fermi.url}/runs?view=all${query}`;
const row = (name) => now.page.getByRole("row", { name: new RegExp(name) });
const api = async (path) => {
  const headers = { Authorization: `Bearer ${now.fermi.token()}` };
  return (await (await fetch(`${now.fermi.url}/api/v1${path}`, { headers })).json()).data;
};

/** Three runs that differ in one parameter, when all of them have ended. */
const runs = once(async () => {
  const { fermi } = now;
  const script = fermi.write("rates.py", SCRIPT);
  for (const rate of RATES)
    await createTask(fermi, `rate-${rate}`, {
      entrypoint: { script, args: [String(rate)] },
      hyperparameters: { learningRate: rate },
    });
  const ended = async () => (await api("/runs?query=rate%20status:succeeded")).items.length === RATES.length;
  await eventually(now.page, ended, "that all tasks have ended", TRAINING_MS);
});

test("runs are found by a query that is completed, and its mistake is marked where it is", async () => {
  await runs();
  const { page } = now;
  await page.goto(table());
  await row("rate-0.01").waitFor();
  await looksRight(page, "runs");
  const field = page.getByRole("combobox", { name: "查询" });
  await field.fill("learn");
  await page.getByRole("option", { name: "learningRate" }).waitFor();
  await field.press("Tab");
  await field.pressSequentially("0.02");
  assert.equal(await field.inputValue(), "learningRate:0.02");
  await field.press("Enter");
  await row("rate-0.01").waitFor({ state: "detached" });
  await row("rate-0.02").waitFor();
  await field.fill("learningRate>>1");
  await field.press("Enter");
  await page.getByRole("alert").waitFor();
  assert.equal(await page.locator("mark").innerText(), ">1");
  await looksRight(page, "runs-problem");
});

test("runs are sorted by what their curves came to, and compared with a baseline", async () => {
  await runs();
  const { page } = now;
  await page.goto(table("&column=param.learningRate&column=metric.val_loss.best&query=rate"));
  await page.getByRole("columnheader", { name: "val_loss" }).getByRole("button").click();
  const names = () => page.getByRole("rowheader").getByRole("link").allInnerTexts();
  const sorted = RATES.map((rate) => `rate-${rate}`);
  const isSorted = async () => (await names()).join() === sorted.toReversed().join();
  await eventually(page, isSorted, "the best loss on top", WAIT_MS);
  await page.getByRole("button", { name: "rate-0.01 的操作" }).click();
  await page.getByRole("menuitem", { name: "设为基准" }).click();
  await row("rate-0.03").getByText("−0.6").waitFor();
  await looksRight(page, "runs-baseline");
});

test("runs are grouped, and a group opens to its runs", async () => {
  await runs();
  const { page } = now;
  await page.goto(table("&query=rate&by=status&column=metric.val_loss.best"));
  const group = page.getByRole("button", { name: /已完成|succeeded/ });
  await group.click();
  await row("rate-0.02").waitFor();
  await looksRight(page, "runs-groups");
});

test("tags and a note stay with a run, and a view with all that the table shows", async () => {
  await runs();
  const { page } = now;
  await page.goto(table("&query=rate-0.03&column=tag&column=note"));
  await page.getByRole("button", { name: "编辑 rate-0.03 的标签" }).click();
  await page.getByRole("combobox", { name: "新标签" }).fill("paper");
  await page.keyboard.press("Enter");
  await row("rate-0.03").getByText("paper").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "添加备注" }).click();
  await page.getByRole("textbox", { name: "备注" }).fill("## 结论\n**最好**的学习率");
  await page.getByRole("tab", { name: "预览" }).click();
  await page.getByRole("dialog").locator("strong").getByText("最好").waitFor();
  await page.getByRole("button", { name: "保存", exact: true }).click();
  await row("rate-0.03").getByText("结论").waitFor();
  await page.getByRole("button", { name: "保存视图" }).click();
  await page.getByRole("textbox", { name: "视图名称" }).fill("papers");
  await page.getByRole("button", { name: "保存", exact: true }).click();
  await page.goto(table());
  await page.getByRole("link", { name: "papers" }).click();
  await row("rate-0.03").getByText("paper").waitFor();
  await row("rate-0.01").waitFor({ state: "detached" });
});

test("selected runs are archived together, and the export has what the table shows", async () => {
  await runs();
  const { page } = now;
  await page.goto(table("&query=rate-0.01&column=metric.val_loss.best"));
  await page.getByRole("checkbox", { name: "选择 rate-0.01" }).click();
  const compare = page.getByRole("link", { name: "对比" });
  assert.match(await compare.getAttribute("href"), /^\/compare\?tasks=task-/);
  await page.getByRole("button", { name: "归档", exact: true }).click();
  await page.getByText("已归档 1 次运行").waitFor();
  await page.getByText("没有符合条件的运行").waitFor();
  await page.getByRole("button", { name: "含已归档" }).click();
  await row("rate-0.01").waitFor();
  await page.getByRole("button", { name: "导出" }).click();
  const [file] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("menuitem", { name: "CSV" }).click(),
  ]);
  const lines = readFileSync(await file.path(), "utf8")
    .trim()
    .split("\n");
  assert.match(lines[0], /val_loss/);
  assert.equal(lines.length, 2);
});

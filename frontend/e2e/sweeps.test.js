// A sweep that is created from a task's page, on a platform with real training, and its trials.
import assert from "node:assert/strict";
import { looksRight } from "./browser.js";
import { eventually } from "./polling.js";
import { createTask, defineSuite } from "./suite.js";

const SCRIPT = `import argparse, json
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--layers", type=int)
args = parser.parse_args()
for step in range(1, 11):
    print(json.dumps({"step": step, "loss": 3 - step * args.lr, "val_acc": args.lr * step}), flush=True)
`;
const TRAINING_MS = 300_000;

let now;
const { test } = defineSuite({ use: (given) => (now = given) });

const api = async (path) => {
  const headers = { Authorization: `Bearer ${now.fermi.token()}` };
  return (await (await fetch(`${now.fermi.url}/api/v1${path}`, { headers })).json()).data;
};

test("a sweep is created from a task, and its trials are tasks with other parameters", async () => {
  const { fermi, page } = now;
  const script = fermi.write("sweep.py", SCRIPT);
  const id = await createTask(fermi, "base", { entrypoint: { script, args: ["--lr", "0.01", "--layers", "2"] } });
  const ended = async () => (await api(`/training-tasks/${id}`)).status === "succeeded";
  await eventually(page, ended, "that the task has ended", TRAINING_MS);

  await page.goto(`${fermi.url}/training/${id}`);
  await page.getByRole("main").getByRole("link", { name: "参数搜索", exact: true }).click();
  await page.waitForURL(`**/sweeps/new?from=${id}`);
  await page.getByRole("button", { name: "搜索 lr" }).click();
  await page.getByLabel("指标").fill("val_acc");
  await page.getByText("这是该指标的惯例。").waitFor();
  assert.equal(await page.getByLabel("方向").inputValue(), "maximize");
  await page.getByLabel("试验次数").fill("2");
  const trials = page.getByRole("list", { name: "最先的几次试验" });
  await trials
    .getByText(/--lr 0\.0\d+ --layers 2/)
    .first()
    .waitFor();
  await looksRight(page, "sweep-create");
  await page.getByRole("button", { name: "开始参数搜索" }).click();

  await page.waitForURL(/\/sweeps\/sweep-/);
  const sweep = page.url().split("/").at(-1);
  const over = async () => (await api(`/sweeps/${sweep}`)).status === "ended";
  await eventually(page, over, "that the sweep has ended", TRAINING_MS);
  const table = page.getByRole("group", { name: "试验" });
  await eventually(page, async () => (await table.getByRole("link").count()) === 2, "two trials", TRAINING_MS);
  await looksRight(page, "sweep");

  const { items } = await api(`/sweeps/${sweep}/trials`);
  assert.equal(items.filter(({ status }) => status === "complete").length, 2);
  const { request } = await api(`/training-tasks/${items[0].taskId}`);
  assert.deepEqual([request.priority, request.preemptible], ["low", true]);
  assert.deepEqual(request.entrypoint.args, ["--lr", String(items[0].parameters.lr), "--layers", "2"]);
});

// Templates and schedules, on a platform with real training: a task becomes a template, and the template a schedule.
import assert from "node:assert/strict";
import { looksRight } from "./browser.js";
import { eventually } from "./polling.js";
import { createTask, defineSuite, step } from "./suite.js";

const SCRIPT = `import json, sys
print(json.dumps({"step": 1, "loss": float(sys.argv[1].partition("=")[2])}), flush=True)
`;
const TRAINING_MS = 300_000;

let now;
const { journey } = defineSuite({ use: (given) => (now = given) });

const api = async (path) => {
  const headers = { Authorization: `Bearer ${now.fermi.token()}` };
  return (await (await fetch(`${now.fermi.url}/api/v1${path}`, { headers })).json()).data;
};
const ended = (id) =>
  eventually(
    now.page,
    async () => ["succeeded", "failed"].includes((await api(`/training-tasks/${id}`)).status),
    `the end of ${id}`,
    TRAINING_MS,
  );
const button = (name) => now.page.getByRole("button", { name, exact: true });

journey("a task becomes a template, the template a task and a schedule", [
  step("a task is saved as a template with its learning rate as a parameter", async () => {
    const { fermi, page } = now;
    const entrypoint = { script: fermi.write("repeat.py", SCRIPT), args: ["--lr=0.5"] };
    const id = await createTask(fermi, "first", { entrypoint, onHang: "report" });
    await ended(id);
    await page.goto(`${fermi.url}/training/${id}`);
    await page.getByRole("link", { name: "存为模板" }).click();
    await button("把 entrypoint.args.0 设为参数").click();
    const card = page.getByRole("group", { name: "lr", exact: true });
    await card.getByLabel("显示名称").fill("学习率");
    await card.getByLabel("最大值").fill("1");
    await page.getByLabel("名称", { exact: true }).first().fill("rates");
    await looksRight(page, "template-editor");
    await button("保存模板").click();
    await page.getByRole("heading", { name: "rates" }).waitFor();
  }),
  step("a value out of its bounds is refused at its field, and another one makes a task", async () => {
    const { page } = now;
    const rate = page.getByLabel("学习率");
    await rate.fill("7");
    await page.locator('[aria-invalid="true"]').waitFor();
    await looksRight(page, "template-refused");
    await rate.fill("0.25");
    await page.getByText("可以创建").waitFor();
    await looksRight(page, "template");
    await button("创建任务").click();
    await page.waitForURL(/\/training\/task-/);
    const id = page.url().split("/").at(-1);
    assert.deepEqual((await api(`/training-tasks/${id}`)).request.entrypoint.args, ["--lr=0.25"]);
    await ended(id);
  }),
  step("a schedule of it is refused with a wrong expression, and saved with a right one", async () => {
    const { fermi, page } = now;
    await page.goto(`${fermi.url}/templates`);
    await page.getByRole("link", { name: "rates", exact: true }).click();
    await page.getByRole("link", { name: "定时运行" }).click();
    await page.getByLabel("Cron 表达式").fill("61 * * * *");
    await page.locator('[aria-invalid="true"]').waitFor();
    await button("工作日 2:00").click();
    await page.getByRole("list", { name: "接下来的时刻" }).getByRole("listitem").nth(4).waitFor();
    await page.getByLabel("名称", { exact: true }).fill("nights");
    await looksRight(page, "schedule-form");
    await button("保存").click();
    await page.getByRole("heading", { name: /nights/ }).waitFor();
  }),
  step("run now creates a task, and the template stays while the schedule uses it", async () => {
    const { page } = now;
    await button("立即运行").click();
    const link = page.getByRole("table").getByRole("link", { name: "first" });
    await link.waitFor();
    await looksRight(page, "schedule");
    await ended((await link.getAttribute("href")).split("/").at(-1));
    await page.getByRole("link", { name: "rates", exact: true }).click();
    await button("删除").click();
    await page.getByRole("alertdialog").getByRole("button", { name: "删除" }).click();
    await page.getByText(/定时 nights/).waitFor();
  }),
]);

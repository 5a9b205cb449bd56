// An agent's purse in the browser: created, exceeded, a proposal approved and one declined, and undone.
import assert from "node:assert/strict";
import { looksRight } from "./browser.js";
import { defineSuite, step } from "./suite.js";

const SECRET = "hunter2-of-the-agent";
const SMALL = { totalSteps: 5, logEvery: 1, batchSize: 2, evalEvery: 5, evalBatches: 1 };
const TRAINING_MS = 240_000;
let page, fermi, token, proposal;

const { journey } = defineSuite({
  options: { trains: true },
  use: (given) => ({ page, fermi } = given),
});

const button = (name) => page.getByRole("button", { name, exact: true });
const dialog = () => page.getByRole("dialog");

/** Sends a request with the agent's token. */
async function send(method, path, body) {
  const answer = await fetch(`${fermi.url}/api/v1${path}`, {
    method,
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    ...(body && { body: JSON.stringify(body) }),
  });
  return { status: answer.status, body: await answer.json() };
}

const request = (taskName, maxRunSeconds) => ({
  taskName,
  datasetId: "dataset-001",
  datasetVersionId: "version-001",
  modelId: "model-001",
  launchMode: "existing",
  environmentIds: ["env-001"],
  hyperparameters: SMALL,
  maxRunSeconds,
  env: { MODE: SECRET },
});

journey("an agent's purse, from being created to being revoked", [
  step("a person creates a token with a purse, which is shown once with a client's configuration", async () => {
    await page.goto(`${fermi.url}/agents`);
    await page.getByText("还没有智能体").waitFor();
    await button("创建智能体令牌").click();
    await dialog().getByLabel("用途").fill("helper");
    await dialog().getByLabel("智能体", { exact: true }).fill("coder");
    await dialog().getByLabel("GPU 小时").fill("0.2");
    await dialog().getByLabel("未结束任务的上限").fill("1");
    const projects = dialog().getByRole("group", { name: "项目" }).getByRole("checkbox");
    if (!(await projects.first().isChecked())) await projects.first().check();
    await looksRight(page, "agents-create");
    await dialog().getByRole("button", { name: "创建智能体令牌" }).click();
    token = await dialog().locator("code.select-all").innerText();
    assert.match(token, /^fermi_/);
    await dialog().getByText(`${fermi.url}/mcp`).waitFor();
    await button("关闭").first().click();
    await page.getByRole("meter", { name: "GPU 小时" }).waitFor();
    assert.ok(!(await page.content()).includes(token));
  }),

  step("a request beyond the purse is refused, and becomes a proposal", async () => {
    const first = await send("POST", "/training-tasks", request("short", 60));
    assert.equal(first.status, 201, JSON.stringify(first.body));
    const refused = await send("POST", "/training-tasks", request("long", 7200));
    assert.equal(refused.status, 403);
    assert.equal(refused.body.error, "PURSE_EXCEEDED");
    proposal = refused.body.proposal;
    assert.equal(proposal.address, `/agents/proposals/${proposal.id}`);
  }),

  step("the navigation counts it, and the page shows it as one thing without secrets", async () => {
    await page.goto(fermi.url + proposal.address);
    await page.getByRole("heading", { name: "训练“long”。" }).waitFor();
    await page.locator("header").getByText("1 条待处理的提议").first().waitFor({ state: "attached" });
    for (const text of ["coder", "超出额度", "计划", "2小时", "maxRunSeconds"])
      await page.locator("main").getByText(text).first().waitFor();
    await page.locator("summary", { hasText: "请求内容" }).click();
    assert.ok(!(await page.content()).includes(SECRET));
    await looksRight(page, "agents-proposal");
  }),

  step("a person approves it, and the task trains with what the agent sent", async () => {
    await button("批准").click();
    await dialog().getByLabel("备注").fill("this once");
    await dialog().getByRole("button", { name: "批准" }).click();
    await page.getByRole("link", { name: "查看任务" }).click();
    await page.waitForURL("**/training/*");
    await page.locator("h1").getByText("long").waitFor();
    await page.getByText("已完成", { exact: true }).first().waitFor({ timeout: TRAINING_MS });
    const { body } = await send("GET", `/proposals/${proposal.id}`);
    assert.equal(body.data.note, "this once");
    assert.equal(body.data.state, "approved");
  }),

  step("another one is declined with a reason that the agent reads", async () => {
    const refused = await send("POST", "/training-tasks", request("longer", 36_000));
    await page.goto(`${fermi.url}/agents/proposals`);
    await page.getByRole("heading", { name: "训练“longer”。" }).waitFor();
    await button("拒绝").click();
    await dialog().getByLabel("理由").fill("too long");
    await dialog().getByRole("button", { name: "拒绝" }).click();
    await page.getByText("没有待处理的提议").waitFor();
    const { body } = await send("GET", `/proposals/${refused.body.proposal.id}`);
    assert.equal(body.data.note, "too long");
    await page.getByLabel("状态", { exact: true }).selectOption("all");
    await page.getByText("备注：too long").first().waitFor();
    await looksRight(page, "agents-proposals");
  }),

  step("what it did is listed; what cannot be undone says why", async () => {
    await page.goto(`${fermi.url}/agents`);
    await page.getByRole("link", { name: "helper", exact: true }).click();
    await page.getByRole("cell", { name: "创建任务" }).waitFor();
    await page.getByRole("cell", { name: "提出请求" }).first().waitFor();
    await looksRight(page, "agents-events");
  }),

  step("in English: a task of the agent is undone by one click", async () => {
    await button("Switch to English").click();
    const made = await send("POST", "/training-tasks", {
      ...request("undone", 60),
      hyperparameters: { ...SMALL, totalSteps: 9000, stepDelay: 0.1 },
    });
    assert.equal(made.status, 201, JSON.stringify(made.body));
    await button("Stop the task").click({ timeout: 60_000 });
    await page.getByRole("alertdialog").getByRole("button", { name: "Stop the task" }).click();
    await page.getByText("This was undone before.").waitFor();
    await looksRight(page, "agents-english");
  }),

  step("a revoked agent is refused", async () => {
    await button("Revoke").click();
    await page.getByRole("alertdialog").getByRole("button", { name: "Revoke" }).click();
    await page.getByText("No agent yet").waitFor();
    assert.equal((await send("GET", "/auth/me")).status, 401);
  }),
]);

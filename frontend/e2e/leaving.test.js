// Who loses a group, the session or the account at the identity provider is out of an open terminal, and training goes on.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { after } from "node:test";
import { eventually } from "./polling.js";
import { defineSuite, step } from "./suite.js";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const PYTHON = process.env.FERMI_PYTHON ?? join(ROOT, ".venv/bin/python");
const SECRET = "a secret of more than thirty-two bytes"; // of tests/fakes/openid.py
const WAIT_MS = 180_000;
const ENVIRONMENT = "/environments/env-001?tab=terminal";
const SCRIPT = `import json, time
for step in range(1, 100_000):
    print(json.dumps({"step": step, "loss": 1 / step}), flush=True)
    time.sleep(0.2)
`;
let page, fermi, provider, issuer, theirs, taskId;

const { journey } = defineSuite({
  options: { settings: { FERMI_IDENTITY_RECHECK_SECONDS: "2" } },
  prepare: async (given) => {
    provider = spawn(PYTHON, ["-m", "tests.fakes.openid"], { cwd: ROOT, stdio: ["ignore", "pipe", "inherit"] });
    issuer = await new Promise((resolve) => provider.stdout.once("data", (text) => resolve(String(text).trim())));
    await control({ claims: { groups: ["ml"] } });
    const settings = { server_url: issuer, scopes: ["offline_access"] };
    const about = {
      id: "company",
      kind: "openid_connect",
      name: "Company",
      clientId: "fermi",
      secret: SECRET,
      settings,
    };
    await administer(given, "POST", "/identity-providers", about);
    const rule = { provider: "company", claim: "groups", pattern: "ml", projectId: "default", role: "member" };
    const { fingerprint } = await administer(given, "POST", "/role-rules/preview", { rule });
    await administer(given, "POST", "/role-rules", { ...rule, fingerprint });
  },
  use: (given) => ({ page, fermi } = given),
});
after(() => provider?.kill());

const control = (changes) => fetch(`${issuer}/control`, { method: "POST", body: JSON.stringify(changes) });

async function administer(platform, method, path, body) {
  const answer = await fetch(`${platform.url}/api/v1${path}`, {
    method,
    headers: { Authorization: `Bearer ${platform.token()}`, "Content-Type": "application/json" },
    ...(body && { body: JSON.stringify(body) }),
  });
  const content = await answer.json();
  assert.ok(answer.ok, JSON.stringify(content));
  return content.data;
}

/** Signs in by the provider, opens a terminal that prints all the time, and returns a promise of its end: `closed`. */
async function openTerminal() {
  const closed = new Promise((resolve) => {
    theirs.on("websocket", (socket) => socket.url().includes("/channel") && socket.on("close", resolve));
  });
  await theirs.goto(`${fermi.url}/sign-in?next=${encodeURIComponent(ENVIRONMENT)}`);
  await theirs.getByRole("button", { name: "使用 Company 登录" }).click();
  await theirs.locator('[data-terminal="open"]').click();
  await theirs.keyboard.type("while true; do echo alive; sleep 1; done\n");
  await theirs
    .locator(".xterm-rows > div", { hasText: /^alive/ })
    .nth(1)
    .waitFor();
  return { closed };
}

const readState = async () => (await administer(fermi, "GET", `/training-tasks/${taskId}`)).status;

journey("a person who loses what the provider gave", [
  step("the group is lost, and the terminal closes while the training goes on", async () => {
    const context = await page.context().browser().newContext({ locale: "zh-CN" });
    theirs = await context.newPage();
    theirs.setDefaultTimeout(WAIT_MS);
    const { closed } = await openTerminal();
    const script = fermi.write("stays.py", SCRIPT);
    const request = {
      taskName: "stays",
      datasetId: "dataset-001",
      datasetVersionId: "version-001",
      modelId: "model-001",
      launchMode: "existing",
      environmentIds: ["env-002"],
      entrypoint: { script, args: [] },
    };
    const created = await theirs.evaluate(async (body) => {
      const token = /csrftoken=([^;]+)/.exec(document.cookie)[1];
      const headers = { "Content-Type": "application/json", "X-CSRFToken": token };
      const answer = await fetch("/api/v1/training-tasks", { method: "POST", headers, body: JSON.stringify(body) });
      return answer.json();
    }, request);
    taskId = created.data?.taskId;
    assert.ok(taskId, JSON.stringify(created));
    await eventually(theirs, async () => (await readState()) === "running", "the training run", WAIT_MS);
    await control({ claims: { groups: [] } });
    await closed;
    await theirs.getByText("不再拥有其所属项目中的角色").waitFor();
    await theirs.goto(`${fermi.url}/environments`);
    await theirs.getByText("还没有环境").waitFor();
    assert.equal(await readState(), "running");
  }),

  step("the person signs out at the provider, and is signed out here", async () => {
    await control({ claims: { groups: ["ml"] } });
    const { closed } = await openTerminal();
    await control({ logout: `${fermi.url}/auth/backchannel-logout/company` });
    await closed;
    await theirs.getByText("你的会话已结束").waitFor();
    assert.equal(new URL(theirs.url()).pathname, "/sign-in");
    assert.equal(await readState(), "running");
  }),

  step("the person leaves the organisation, and is signed out here", async () => {
    const { closed } = await openTerminal();
    await control({ left: ["u-1"] });
    await closed;
    await theirs.getByText("你的会话已结束").waitFor();
    assert.equal(await readState(), "running");
    await theirs.context().close();
  }),
]);

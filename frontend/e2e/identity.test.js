// Sign-in by an identity provider in the browser: set up, tested, used, switched off and deleted.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { after } from "node:test";
import { looksRight } from "./browser.js";
import { defineSuite, step } from "./suite.js";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const PYTHON = process.env.FERMI_PYTHON ?? join(ROOT, ".venv/bin/python");
const SECRET = "a secret of more than thirty-two bytes"; // of tests/fakes/openid.py
const PAGE = "/administration/sign-in";
let page, fermi, issuer, vendor, callback;
const served = [];

/** Starts a provider of tests/fakes, and returns its address. */
function serve(name) {
  const env = { ...process.env, PYTHONPATH: [ROOT, join(ROOT, "platform")].join(":") };
  const child = spawn(PYTHON, ["-m", `tests.fakes.${name}`], { cwd: ROOT, env, stdio: ["ignore", "pipe", "inherit"] });
  served.push(child);
  return new Promise((resolve) => child.stdout.once("data", (text) => resolve(String(text).trim())));
}

const { journey } = defineSuite({
  prepare: async () => {
    [issuer, vendor] = await Promise.all([serve("openid"), serve("vendors")]);
  },
  use: (given) => ({ page, fermi } = given),
  allowed: /^request to http:\/\/127\.0\.0\.1:\d+\/(authorize|sign-in)\?/, // the providers
});
after(() => {
  for (const child of served) child.kill();
});

const button = (name) => page.getByRole("button", { name, exact: true });
const dialog = () => page.getByRole("dialog");
const field = (name) => dialog().getByLabel(name, { exact: true });

journey("an identity provider, from being set up to being deleted", [
  step("an administrator finds the page from the settings", async () => {
    await page.goto(`${fermi.url}/settings`);
    await page.getByRole("link", { name: "身份提供方登录" }).click();
    await page.getByText("还没有身份提供方").waitFor();
    await looksRight(page, "identity-none");
  }),

  step("a wrong issuer is named at its field", async () => {
    await button("添加身份提供方").click();
    await field("身份提供方").selectOption("openid_connect");
    await field("ID").fill("company");
    callback = `${fermi.url}/auth/oidc/company/login/callback/`;
    await dialog().getByText(callback, { exact: true }).waitFor();
    await field("名称").fill("Company");
    await field("签发者").fill("http://sso.example.org");
    await field("客户端 ID").fill("fermi");
    await field("客户端密钥").fill(SECRET);
    await dialog().getByRole("button", { name: "保存", exact: true }).click();
    await dialog().locator('[name="settings.server_url"][aria-invalid="true"]').waitFor();
    await looksRight(page, "identity-form");
  }),

  step("the provider is set up, and its secret is nowhere", async () => {
    await field("签发者").fill(issuer);
    await dialog().getByRole("button", { name: "保存", exact: true }).click();
    await page.getByText(callback, { exact: true }).waitFor();
    await dialog().waitFor({ state: "detached" });
    assert.ok(!(await page.content()).includes(SECRET));
    await looksRight(page, "identity-list");
  }),

  step("a test shows the claims in a second window, and makes no account", async () => {
    const opened = page.context().waitForEvent("page");
    await button("测试 Company").click();
    const shown = await opened;
    await shown.getByText('"preferred_username": "ada"').first().waitFor();
    assert.equal(await shown.evaluate(() => window.opener), null);
    await shown.close();
    await page.reload();
    await page.getByText("0 个", { exact: true }).waitFor();
  }),

  step("a person without an account signs in by the provider's button", async () => {
    const other = await page.context().browser().newContext({ locale: "zh-CN" });
    try {
      const theirs = await other.newPage();
      await theirs.goto(`${fermi.url}/sign-in?next=%2Fsettings`);
      await theirs.getByRole("button", { name: "使用 Company 登录" }).click();
      await theirs.waitForURL("**/settings");
      await theirs.getByRole("main").getByText("ada", { exact: true }).waitFor();
      await theirs.goto(fermi.url + PAGE);
      await theirs.getByRole("alert").waitFor();
      assert.equal(await theirs.getByRole("button", { name: "添加身份提供方" }).count(), 0);
    } finally {
      await other.close();
    }
    await page.reload();
    await page.getByText("1 个", { exact: true }).waitFor();
  }),

  step("while an account is linked, the issuer stays", async () => {
    await button("编辑 Company").click();
    await field("签发者").fill("https://other.example.org");
    await dialog().getByRole("button", { name: "保存", exact: true }).click();
    await dialog().locator('[name="settings.server_url"][aria-invalid="true"]').waitFor();
    await page.keyboard.press("Escape");
  }),

  step("a disabled provider has no button on the sign-in page", async () => {
    await button("停用").click();
    await page.getByText("已停用", { exact: true }).waitFor();
    const answer = await fetch(`${fermi.url}/api/v1/auth/providers`);
    assert.deepEqual((await answer.json()).data.providers, []);
  }),

  step("in English: it is deleted with its links after a question", async () => {
    await button("Switch to English").click();
    await button("Delete Company").click();
    const asked = page.getByRole("alertdialog");
    await asked.getByText(/Linked accounts: 1\./).waitFor();
    await asked.getByRole("button", { name: "Delete", exact: true }).click();
    await page.getByText("No identity provider yet").waitFor();
    await looksRight(page, "identity-english");
  }),
]);

journey("a vendor's sign-in, whose organisation the test shows", [
  step("the form wants the organisation, and nothing of OpenID Connect", async () => {
    await page.goto(fermi.url + PAGE);
    await button("添加身份提供方").click();
    await field("身份提供方").selectOption("feishu");
    await field("ID").fill("firm");
    await dialog().getByText(`${fermi.url}/auth/vendors/firm/login/callback/`, { exact: true }).waitFor();
    await looksRight(page, "identity-vendor-form");
    await field("名称").fill("Firm");
    await field("租户标识（tenant_key）").fill("unknown");
    await field("客户端 ID").fill("client");
    await field("客户端密钥").fill("the application's secret"); // of tests/fakes/vendors.py
    await dialog().getByRole("button", { name: "保存", exact: true }).click();
    await dialog().waitFor({ state: "detached" });
    await setSettings({ tenant_key: "unknown" });
  }),

  step("the test shows the organisation that is to be entered", async () => {
    const opened = page.context().waitForEvent("page");
    await button("测试 Firm").click();
    const shown = await opened;
    await shown.getByText('"tenant": "firm"').first().waitFor();
    await shown.getByRole("heading", { name: /所设组织的成员/ }).waitFor();
    await shown.close();
  }),

  step("another organisation is refused on the sign-in page, the right one signs in", async () => {
    const other = await page.context().browser().newContext({ locale: "zh-CN" });
    try {
      const theirs = await other.newPage();
      await theirs.goto(`${fermi.url}/sign-in`);
      await theirs.getByRole("button", { name: "使用 Firm 登录" }).click();
      await theirs
        .getByRole("alert")
        .getByText(/所设组织的成员/)
        .waitFor();
      await setSettings({ tenant_key: "firm", fetch_groups: true });
      await theirs.goto(`${fermi.url}/sign-in?next=%2Fsettings`);
      await theirs.getByRole("button", { name: "使用 Firm 登录" }).click();
      await theirs.waitForURL("**/settings");
    } finally {
      await other.close();
    }
  }),

  step("in English: the form with the departments", async () => {
    await page.reload();
    await button("Switch to English").click();
    await button("Edit Firm").click();
    assert.ok(
      await dialog()
        .getByLabel(/Read departments and groups/)
        .isChecked(),
    );
    await looksRight(page, "identity-vendor-english");
    const headers = { Authorization: `Bearer ${fermi.token()}` };
    await fetch(`${fermi.url}/api/v1/identity-providers/firm`, { method: "DELETE", headers });
  }),
]);

/** Changes the vendor's settings, with the addresses of the one on loopback, which the form does not show. */
async function setSettings(settings) {
  const answer = await fetch(`${fermi.url}/api/v1/identity-providers/firm`, {
    method: "PATCH",
    headers: { Authorization: `Bearer ${fermi.token()}`, "Content-Type": "application/json" },
    body: JSON.stringify({ settings: { ...settings, server_url: vendor, authorize_url: `${vendor}/sign-in` } }),
  });
  assert.equal(answer.status, 200, await answer.text());
}

// Programs get access in the browser: requests that a person narrows, approves or denies, and codes of devices.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { after } from "node:test";
import { looksRight } from "./browser.js";
import { defineSuite } from "./suite.js";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const PYTHON = process.env.FERMI_PYTHON ?? join(ROOT, ".venv/bin/python");
const PYTHONPATH = [ROOT, join(ROOT, "platform")].join(":");
const COMMAND_LINE = "fermi-cli"; // apps/oauth/services/clients.py
const DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code";
const folder = mkdtempSync(join(tmpdir(), "fermi-oauth-"));
const children = new Set();
let page, fermi, program, returned;

const { test } = defineSuite({
  prepare: async () => {
    returned = [];
    program = createServer((request, response) => {
      if (request.url.startsWith("/callback")) returned.push(new URL(request.url, "http://127.0.0.1").searchParams);
      response.setHeader("Content-Type", "text/html").end("<!doctype html><title>program</title>back at the program");
    });
    await new Promise((resolve) => program.listen(0, "127.0.0.1", resolve));
  },
  use: (given) => ({ page, fermi } = given),
  allowed: /^request to http:\/\/127\.0\.0\.1:\d+\/(callback|authorize)\?|favicon/,
});
after(() => {
  for (const child of children) child.kill();
  program?.close();
  rmSync(folder, { recursive: true, force: true });
});

const button = (name) => page.getByRole("button", { name, exact: true });
const base64 = (bytes) => bytes.toString("base64url");

/** Returns the address of a request for access, with the verifier of its challenge. */
function request(more = {}) {
  const verifier = base64(randomBytes(48));
  const redirect = `http://127.0.0.1:${program.address().port}/callback`;
  const query = new URLSearchParams({
    response_type: "code",
    client_id: COMMAND_LINE,
    redirect_uri: redirect,
    scope: "all",
    state: base64(randomBytes(16)),
    code_challenge: base64(createHash("sha256").update(verifier).digest()),
    code_challenge_method: "S256",
    ...more,
  });
  return { address: `${fermi.url}/oauth/authorize?${query}`, verifier, redirect, state: query.get("state") };
}

async function post(path, form) {
  const answer = await fetch(`${fermi.url}/oauth/${path}`, { method: "POST", body: new URLSearchParams(form) });
  return { status: answer.status, ...(await answer.json().catch(() => ({}))) };
}

const ask = (token, path) => fetch(`${fermi.url}/api/v1${path}`, { headers: { Authorization: `Bearer ${token}` } });

/** Returns what the browser brought back to the program. */
async function comeBack() {
  await page.getByText("back at the program").waitFor();
  return returned.at(-1);
}

test("a request is narrowed to a project, approved, and its token is of this project alone", async () => {
  const { address, verifier, redirect, state } = request();
  await page.goto(address);
  await page.getByRole("heading", { name: /请求访问 Fermi/ }).waitFor();
  await looksRight(page, "oauth-consent");
  await page.getByLabel("仅限所选项目").check();
  assert.ok(await button("同意").isDisabled(), "no project is chosen yet");
  await page.locator("fieldset").last().getByRole("checkbox").first().check();
  await page.getByLabel("有效期").selectOption("1");
  await button("同意").click();
  const params = await comeBack();
  assert.equal(params.get("state"), state);
  assert.equal(params.get("iss"), fermi.url);
  const form = { grant_type: "authorization_code", client_id: COMMAND_LINE, redirect_uri: redirect };
  const code = params.get("code");
  assert.equal((await post("token", { ...form, code, code_verifier: "x".repeat(43) })).status, 400);
  await page.goto(address);
  await page.getByLabel("仅限所选项目").check();
  await page.locator("fieldset").last().getByRole("checkbox").first().check();
  await button("同意").click();
  const again = (await comeBack()).get("code");
  const given = await post("token", { ...form, code: again, code_verifier: verifier });
  assert.equal(given.status, 200);
  assert.equal((await (await ask(given.access_token, "/auth/me")).json()).data.projects.length, 1);
  assert.equal((await ask(given.access_token, "/people")).status, 403, "an administrator's token of one project");
});

test("a denial comes back to the program with its state", async () => {
  const { address, state } = request();
  await page.goto(address);
  await button("拒绝").click();
  const params = await comeBack();
  assert.deepEqual([params.get("error"), params.get("state"), params.get("code")], ["access_denied", state, null]);
});

test("a request that would return elsewhere is shown and leads nowhere", async () => {
  await page.goto(request({ redirect_uri: "https://elsewhere.example.org/callback" }).address);
  await page.getByRole("alert").waitFor();
  assert.equal(await button("同意").count(), 0);
  assert.ok(page.url().startsWith(fermi.url));
});

test("a code of a device is typed, a wrong one is named, and an answered one does not count again", async () => {
  const device = await post("device/code", { client_id: COMMAND_LINE, scope: "all" });
  await page.goto(device.verification_uri);
  await page.getByLabel("设备上显示的代码").fill("BCDF-GHJK");
  await button("继续").click();
  await page.getByRole("alert").waitFor();
  await looksRight(page, "oauth-device-wrong");
  await page.getByLabel("设备上显示的代码").fill(device.user_code.toLowerCase());
  await button("继续").click();
  await page.getByRole("heading", { name: /请求访问 Fermi/ }).waitFor();
  await button("同意").click();
  await page.getByText(/^已(同意|拒绝)。/).waitFor();
  const form = { grant_type: DEVICE_GRANT, client_id: COMMAND_LINE, device_code: device.device_code };
  const given = await post("token", form);
  assert.equal((await ask(given.access_token, "/auth/me")).status, 200);
  await page.goto(device.verification_uri_complete);
  assert.equal(await page.getByLabel("设备上显示的代码").inputValue(), device.user_code);
  await button("继续").click();
  await page.getByRole("alert").waitFor();
});

test("a device whose code is denied learns it", async () => {
  const device = await post("device/code", { client_id: COMMAND_LINE, scope: "all" });
  await page.goto(device.verification_uri_complete);
  await button("继续").click();
  await button("拒绝").click();
  await page.getByText(/^已(同意|拒绝)。/).waitFor();
  const form = { grant_type: DEVICE_GRANT, client_id: COMMAND_LINE, device_code: device.device_code };
  assert.equal((await post("token", form)).error, "access_denied");
});

test(
  "who is signed out signs in and comes back to the request",
  async () => {
    const provider = start(["-m", "tests.fakes.openid"]);
    const issuer = await provider.find(/^http/);
    const made = await fetch(`${fermi.url}/api/v1/identity-providers`, {
      method: "POST",
      headers: { Authorization: `Bearer ${fermi.token()}`, "Content-Type": "application/json" },
      body: JSON.stringify({
        id: "company",
        kind: "openid_connect",
        name: "Company",
        clientId: "fermi",
        secret: "a secret of more than thirty-two bytes", // of tests/fakes/openid.py
        settings: { server_url: issuer },
      }),
    });
    assert.equal(made.status, 201, await made.text());
    await page.goto(request().address);
    await page.getByRole("button", { name: "使用 Company 登录" }).click();
    await page.getByText(/^你以 (?!admin)\S+ 的身份登录。/).waitFor();
    await button("Switch to English").click();
    await page.getByRole("button", { name: "Approve", exact: true }).waitFor();
    await looksRight(page, "oauth-consent-english");
    await page.getByRole("button", { name: "Approve", exact: true }).click();
    assert.ok((await comeBack()).get("code"));
  },
  { signedIn: false },
);

/** Starts a Python program and returns functions that read and write its lines. */
function start(args, env = {}) {
  const child = spawn(PYTHON, args, { cwd: ROOT, env: { ...process.env, PYTHONPATH, ...env } });
  children.add(child);
  const lines = [];
  let wake = () => undefined;
  for (const stream of [child.stdout, child.stderr])
    createInterface({ input: stream }).on("line", (line) => {
      lines.push(line);
      wake();
    });
  const exit = new Promise((resolve) => child.once("exit", (code) => resolve(code)));
  void exit.then(() => wake());
  const find = async (pattern) => {
    for (;;) {
      const index = lines.findIndex((line) => pattern.test(line));
      if (index >= 0) return lines.splice(0, index + 1).at(-1);
      if (child.exitCode !== null) throw new Error(`the program ended:\n${lines.join("\n")}`);
      await new Promise((resolve) => (wake = resolve));
    }
  };
  return {
    find,
    exit,
    next: () => child.stdin.write("\n"),
    report: async (key) => JSON.parse(await find(new RegExp(`^\\{"${key}"`))),
  };
}

test("the official client of MCP finds the sign-in, gets a token, refreshes it, and is out after it was revoked", async () => {
  const client = start(["-m", "tests.fakes.oauth_program", fermi.url]);
  await page.goto((await client.report("open")).open);
  await page.getByRole("heading", { name: /A program of a test/ }).waitFor();
  await looksRight(page, "oauth-registered");
  const offered = await page.getByRole("group", { name: "允许它" }).getByRole("checkbox").count();
  await page.getByRole("group", { name: "允许它" }).getByRole("checkbox").last().uncheck();
  await button("同意").click();
  await page.getByText("back at the program").waitFor();
  const signedIn = await client.report("tools");
  assert.ok(signedIn.tools > 5, JSON.stringify(signedIn));
  assert.equal(signedIn.failed, false);
  assert.equal(signedIn.scope.split(" ").length, offered - 1, "what the person left out");
  assert.ok(!signedIn.scope.includes("workers:"), "the tools need no more than they name");
  client.next();
  assert.deepEqual(await client.report("refreshed"), { refreshed: true, failed: false });
  client.next();
  assert.deepEqual(await client.report("revoked"), { revoked: 200 });
  client.next();
  await page.goto((await client.report("open")).open);
  await button("拒绝").click();
  await page.getByText("back at the program").waitFor();
  assert.ok((await client.report("ended")).ended);
});

/** Returns the environment of a `fermi` of its own, whose browser writes the address that it is to open to its terminal. */
function makeHome(name) {
  const show = join(folder, "show");
  writeFileSync(show, '#!/bin/sh\necho "OPENS $1"\n');
  chmodSync(show, 0o755);
  const home = join(folder, name);
  return { HOME: home, XDG_CONFIG_HOME: home, BROWSER: show, FERMI_URL: "", FERMI_TOKEN: "", LC_ALL: "C.UTF-8" };
}

const runFermi = (args, env) => start(["-m", "fermi.cli", ...args], env);
const IN_TERMINAL = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";

test("fermi login opens the browser, and fermi logout ends what came of it", async () => {
  const env = makeHome("browser");
  const login = start(["-c", IN_TERMINAL, PYTHON, "-m", "fermi.cli", "login", fermi.url], env);
  const address = (await login.find(/OPENS http/)).replace(/.*OPENS /, "").trim();
  await page.goto(address);
  await button("同意").click();
  await page.waitForURL(/\/callback\?/);
  await login.find(/admin/);
  assert.equal(await login.exit, 0);
  const whoami = runFermi(["whoami"], env);
  assert.equal(await whoami.exit, 0);
  assert.equal(await runFermi(["logout"], env).exit, 0);
  assert.notEqual(await runFermi(["whoami"], env).exit, 0);
});

test("fermi login --device shows a code, and waits for the person", async () => {
  const env = makeHome("device");
  const login = runFermi(["login", fermi.url, "--device"], env);
  const code = /[A-Z]{4}-[A-Z]{4}/.exec(await login.find(/[A-Z]{4}-[A-Z]{4}/))[0];
  await page.goto(`${fermi.url}/oauth/device`);
  await page.getByLabel("设备上显示的代码").fill(code);
  await button("继续").click();
  await button("同意").click();
  await page.getByText(/^已(同意|拒绝)。/).waitFor();
  assert.equal(await login.exit, 0);
  assert.equal(await runFermi(["whoami"], env).exit, 0);
});

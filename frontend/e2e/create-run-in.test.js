// Where ranks run, on a cluster that can do both: chosen with a reason, asked for, refused at the control, kept.
import assert from "node:assert/strict";
import { defineCreateSuite } from "./create-page.js";

const RUN_IN = "distributedConfig.runIn";
const ALL = "?environments=env-full,env-roomy,env-bare";

let page, open, takeScript, looksRight, eventually, button, card, named;

const { test } = defineCreateSuite({
  prepare: (fermi) => fermi.seed(0, "seed-pods.py"),
  use: (given) => ({ page, open, takeScript, looksRight, eventually, button, card, named } = given),
});

const reasons = () => page.getByRole("group", { name: "各环境的运行位置及原因" });
const choice = (name) => page.getByRole("radio", { name });

/** A module of the image's own, which reads nothing of the platform. */
async function openModule(query) {
  await open(query);
  await named("taskName").fill("run-in");
  await takeScript();
  await named("entrypoint.script").fill("-m training");
}

test("each environment shows the run location of its ranks and the reason", async () => {
  await openModule(ALL);
  await eventually(
    async () => (await reasons().innerText()).includes("环境持有 2 个 GPU"),
    "the environment with free GPUs runs inside",
  );
  const said = await reasons().getByRole("listitem").allInnerTexts();
  assert.deepEqual(
    said.map((text) => text.split(/\n+/).slice(0, 2)),
    [
      ["full", "环境内"],
      ["roomy", "环境内"],
      ["bare", "环境外"],
    ],
  );
  assert.match(said[0], /之外训练/, "as its node's GPUs are held");
  assert.match(said[2], /没有找到 Python/);
  await page.getByText("可以提交").waitFor();
  await looksRight("create-run-in");
});

test("an impossible run location shows an error at its control, and the preview links to it", async () => {
  await openModule(ALL);
  await choice(/^环境内/).check();
  const wrong = page.getByRole("group", { name: "运行位置", exact: true }).getByText("没有找到 Python");
  await wrong.waitFor();
  assert.match(await wrong.innerText(), /bare/);
  await looksRight("create-run-in-refused");
  await button("去修改").click();
  assert.equal(
    await named(RUN_IN)
      .first()
      .evaluate((element) => element === document.activeElement),
    true,
  );
  await card("bare").uncheck();
  await page.getByText("可以提交").waitFor();
  await card("closed").check();
  await choice(/^自动/).check();
  const both = page.getByRole("group", { name: "运行位置", exact: true });
  await both.getByText("没有找到 Python").waitFor();
  assert.match(await both.innerText(), /无法在 closed 之外训练/);
});

test("an environment on this machine offers the run locations, and trains inside", async () => {
  await open("?environments=env-001");
  await page.getByText("还需完成 1 项").waitFor();
  assert.equal(await named(RUN_IN).count(), 3);
  assert.equal((await reasons().getByRole("listitem").innerText()).split(/\n+/)[1], "环境内");
});

test("the task shows the run location, and a clone keeps the request", async () => {
  await openModule("?environments=env-full");
  await choice(/^环境内/).check();
  await named("distributedConfig.python").fill("/opt/conda/bin/python");
  await page.getByText("可以提交").waitFor();
  await button("创建并启动训练").click();
  await page.waitForURL(/\/training\/task-/);
  await reasons().getByText("由请求指定").waitFor();
  await page.getByText("/opt/conda/bin/python", { exact: true }).waitFor();
  await looksRight("task-run-in");
  await page.getByRole("link", { name: "克隆" }).click();
  await choice(/^环境内/).waitFor();
  assert.equal(await choice(/^环境内/).isChecked(), true);
  assert.equal(await named("distributedConfig.python").inputValue(), "/opt/conda/bin/python");
});

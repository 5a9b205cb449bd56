// What the console says when the platform does not answer: frozen, gone, and back.
import assert from "node:assert/strict";
import { shoot, violations } from "./browser.js";
import { createTask, defineSuite } from "./suite.js";

const OWN = !process.env.FERMI_E2E_URL; // another's platform is not frozen
let fermi, page;

const { test } = defineSuite({
  use: (given) => ({ fermi, page } = given),
  allowed: /./, // requests fail while the platform is frozen
});
const open = (path) => page.goto(fermi.url + path);
const freeze = () => fermi.signal("web", "SIGSTOP");
const thaw = () => fermi.signal("web", "SIGCONT");

async function whileFrozen(body) {
  freeze();
  try {
    await body();
  } finally {
    thaw();
  }
}
const silent = () => page.getByText("平台没有回应", { exact: false });

test("an idle page shows that the platform is unreachable, and recovers", async () => {
  if (!OWN) return;
  await open("/");
  await page.getByRole("heading", { level: 1 }).waitFor();
  const navigation = page.getByRole("banner").getByRole("navigation");
  await navigation.locator("summary", { hasText: "机器" }).click();
  await navigation.getByRole("link", { name: "可用区", exact: true }).click();
  await page.getByRole("link", { name: "北京可用区A" }).waitFor();
  assert.equal(await silent().count(), 0);
  await whileFrozen(async () => {
    await silent().waitFor();
    assert.deepEqual(await violations(page), []);
    assert.deepEqual(await shoot(page, "platform-frozen"), []);
  });
  await silent().waitFor({ state: "detached" });
});

test("a task page is not shown as live without updates", async () => {
  if (!OWN) return;
  await open(`/training/${await createTask(fermi, "frozen", { hyperparameters: { totalSteps: 1_000_000 } })}`);
  const live = page.getByText("实时", { exact: true });
  await live.waitFor();
  await whileFrozen(async () => {
    await page.getByText(/^\d\d:\d\d:\d\d 起没有更新$/).waitFor();
    await silent().waitFor();
    assert.equal(await live.count(), 0);
  });
  await live.waitFor();
  await silent().waitFor({ state: "detached" });
});

test(
  "a signed-out user sees how to get a link on the platform's machine",
  async () => {
    await page.goto(fermi.signInLink());
    await page.getByRole("button", { name: "退出登录" }).click();
    await page.getByText(".venv/bin/fermi login-link").waitFor();
    assert.deepEqual(await violations(page), []);
    assert.deepEqual(await shoot(page, "sign-in-embedded"), []);
  },
  { signedIn: false },
);

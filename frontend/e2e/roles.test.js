// Roles by group in the browser: previewed, saved, seen in the audit trail, deleted.
import assert from "node:assert/strict";
import { looksRight } from "./browser.js";
import { defineSuite, step } from "./suite.js";

const PEOPLE = 12;
let page, fermi;

const { journey } = defineSuite({
  prepare: (given) => given.seed(PEOPLE, "seed-groups.py"),
  use: (given) => ({ page, fermi } = given),
});

const button = (name) => page.getByRole("button", { name, exact: true });
const dialog = () => page.getByRole("dialog");
const field = (name) => dialog().getByLabel(name, { exact: true });

async function previewRule(group, target = "project") {
  await button("添加规则").click();
  await field("组的来源").selectOption("company");
  await field("组").fill(group);
  await field("授予").selectOption(target);
  if (target === "project") await field("项目").selectOption({ index: 1 });
  assert.ok(await dialog().getByRole("button", { name: "保存", exact: true }).isDisabled());
  await dialog().getByRole("button", { name: "预览", exact: true }).click();
}

journey("rules that give roles, from the first to the last", [
  step("an administrator finds the page in the navigation, with an example", async () => {
    await page.goto(`${fermi.url}/overview`);
    await page.locator("header nav summary", { hasText: "管理" }).click();
    await page.getByRole("link", { name: "按组授予角色" }).click();
    await page.getByText("还没有规则").waitFor();
    await looksRight(page, "roles-none-zh");
  }),

  step("a preview names who would get a role, and what was read", async () => {
    await previewRule("ml-vision");
    await dialog().getByText(`${PEOPLE} 人成为成员`).click();
    await dialog().getByText("person-0 · person-1").waitFor();
    await dialog().getByText("已读取").click();
    await dialog().getByRole("button", { name: "platform-admins 1" }).waitFor();
    await looksRight(page, "roles-preview-zh");
  }),

  step("what changed since the preview is not saved", async () => {
    fermi.seed(0, "seed-groups-change.py");
    await dialog().getByRole("button", { name: "保存", exact: true }).click();
    await dialog().getByText("预览之后，规则或成员的组已有变化").waitFor();
    await dialog().getByRole("button", { name: "预览", exact: true }).click();
    await dialog()
      .getByText(`${PEOPLE - 1} 人成为成员`)
      .waitFor();
    await dialog().getByRole("button", { name: "保存", exact: true }).click();
    await dialog().waitFor({ state: "detached" });
    await page.getByText("1 条规则").waitFor();
    await looksRight(page, "roles-zh");
  }),

  step("who would become an administrator is named in a warning", async () => {
    await previewRule("platform-admins", "administrator");
    await dialog().getByRole("alert").getByText("person-0").waitFor();
    await looksRight(page, "roles-administrators-zh");
    await page.keyboard.press("Escape");
  }),

  step("the audit trail shows the rule and the members, filtered by the address", async () => {
    await page.goto(`${fermi.url}/audit`);
    await page.getByRole("cell", { name: "添加了角色规则", exact: true }).waitFor();
    await page.getByLabel("操作", { exact: true }).selectOption("role-rule.create");
    await page.waitForURL("**/audit?action=role-rule.create");
    await page.getByText("1 个事件，没有更早的了").waitFor();
    await page.getByRole("button", { name: /^详情：添加了角色规则/ }).click();
    await page.getByLabel("data.json").getByText("ml-vision").waitFor();
    await looksRight(page, "audit-zh");
  }),

  step("the export has the filters of the page", async () => {
    const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "导出" }).click()]);
    const chunks = [];
    for await (const chunk of await file.createReadStream()) chunks.push(chunk);
    const lines = Buffer.concat(chunks).toString().trim().split("\n");
    assert.deepEqual(
      lines.map((line) => JSON.parse(line).action),
      ["role-rule.create"],
    );
  }),

  step("in English: a deletion shows who loses access", async () => {
    await button("Switch to English").click();
    await page.getByRole("cell", { name: "Added a rule for roles", exact: true }).waitFor();
    await looksRight(page, "audit-en");
    await page.goto(`${fermi.url}/administration/roles`);
    await page.getByText("1 rule", { exact: true }).waitFor();
    await looksRight(page, "roles-en");
    await button("Delete the rule for ml-vision").click();
    await dialog()
      .getByText(`${PEOPLE - 1} people lose access`)
      .waitFor();
    await looksRight(page, "roles-delete-en");
    await dialog().getByRole("button", { name: "Delete the rule", exact: true }).click();
    await page.getByText("No rule yet").waitFor();
  }),
]);

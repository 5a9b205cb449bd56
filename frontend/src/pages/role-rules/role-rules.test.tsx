import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { RoleRule, RoleRulePreview } from "@/api/role-rules";
import { apiUrl, me, platformHandlers, respondWith, respondWithError, respondWithList } from "@/test/platform";
import { renderAt } from "@/test/render";
import { buildRule, EMPTY_DRAFT, makeDraft } from "./draft";

const rule: RoleRule = {
  id: "rule-1",
  provider: "company",
  claim: "groups",
  pattern: "ml-*",
  projectId: "project-1",
  projectName: "默认",
  createProject: false,
  administrator: false,
  role: "member",
  peopleCount: 12,
  createdAt: "2026-11-01T00:00:00Z",
  createdBy: "root",
  updatedAt: "2026-11-02T00:00:00Z",
  updatedBy: "root",
};

const staff = { id: "directory-1", name: "Staff", provider: "company", people: 2, groups: 1, tokens: [] };

const preview = (over: Partial<RoleRulePreview> = {}): RoleRulePreview => ({
  fingerprint: "f1",
  gaining: 0,
  losing: 0,
  changes: [],
  changesTotal: 0,
  newAdministrators: [],
  lostAdministrators: [],
  lastAdministrator: null,
  tokens: [],
  tokensTotal: 0,
  knownTotal: 3,
  unknownTotal: 0,
  groups: [],
  groupsTotal: 0,
  taken: [],
  ...over,
});

const change = (username: string, after: "member" | null, before: "member" | null = null) => ({
  username,
  projectId: "project-1",
  projectName: "默认",
  before,
  after,
});

function show(shown: RoleRulePreview, ...rules: RoleRule[]) {
  const sent: unknown[] = [];
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () => respondWith({ ...me, isAdministrator: true })),
    http.get(apiUrl("/identity-providers"), () =>
      respondWithList({ id: "company", name: "Company", kind: "keycloak", settings: {} }),
    ),
    http.get(apiUrl("/directories"), () => respondWithList(staff)),
    http.get(apiUrl("/role-rules"), () => respondWithList(...rules)),
    http.post(apiUrl("/role-rules/preview"), async ({ request }) => {
      sent.push(["preview", await request.json()]);
      return respondWith(shown);
    }),
    http.post(apiUrl("/role-rules"), async ({ request }) => {
      sent.push(["save", await request.json()]);
      return respondWith(rule, 201);
    }),
    http.delete(apiUrl("/role-rules/rule-1"), ({ request }) => {
      sent.push(["delete", new URL(request.url).search]);
      return respondWith(null);
    }),
  );
  renderAt("/administration/roles");
  return sent;
}

async function fillRule(user: ReturnType<typeof userEvent.setup>) {
  await user.click(await screen.findByRole("button", { name: "添加规则" }));
  const dialog = within(await screen.findByRole("dialog"));
  await user.selectOptions(await dialog.findByLabelText("组的来源"), await dialog.findByText("Company"));
  await user.type(dialog.getByLabelText("组"), "ml");
  await user.selectOptions(dialog.getByLabelText("项目"), "默认");
  return dialog;
}

const saveButton = (dialog: Pick<typeof screen, "getByRole">) =>
  dialog.getByRole<HTMLButtonElement>("button", { name: "保存" });

test("a rule is saved only as its preview has shown it", async () => {
  const sent = show(
    preview({
      changes: [change("ada", "member"), change("bob", "member"), change("eve", null, "member")],
      changesTotal: 3,
      tokens: [{ id: "0123", name: "ci", username: "eve" }],
      tokensTotal: 1,
    }),
  );
  const user = userEvent.setup();
  const dialog = await fillRule(user);
  expect(saveButton(dialog).disabled).toBe(true);
  await user.click(dialog.getByRole("button", { name: "预览" }));
  await dialog.findByText("默认：2 人成为成员");
  expect(dialog.queryByText("ada · bob")).toBeNull();
  await user.click(dialog.getByText("默认：2 人成为成员"));
  await dialog.findByText("ada · bob");
  await user.click(dialog.getByText("默认：1 人失去访问权限"));
  await dialog.findByText("eve（原为成员）");
  dialog.getByText("1 个 API 令牌失效");
  await user.type(dialog.getByLabelText("组"), "x");
  expect(saveButton(dialog).disabled).toBe(true);
  expect(dialog.queryByText("默认：2 人成为成员")).toBeNull();
  await user.click(dialog.getByRole("button", { name: "预览" }));
  await waitFor(() => expect(saveButton(dialog).disabled).toBe(false));
  await user.click(saveButton(dialog));
  await screen.findByText("规则已保存并应用");
  const body = {
    provider: "company",
    claim: "groups",
    pattern: "mlx",
    projectId: "project-1",
    createProject: false,
    administrator: false,
    role: "member",
  };
  expect(sent.at(-2)).toEqual(["preview", { rule: body }]);
  expect(sent.at(-1)).toEqual(["save", { ...body, fingerprint: "f1" }]);
});

test("new administrators are a warning with their names", async () => {
  show(preview({ newAdministrators: ["ada"] }));
  const user = userEvent.setup();
  const dialog = await fillRule(user);
  await user.selectOptions(dialog.getByLabelText("授予"), "administrator");
  await user.click(dialog.getByRole("button", { name: "预览" }));
  const warning = await dialog.findByRole("alert");
  expect(warning.textContent).toMatch(/1 人成为整个平台的管理员.*ada/);
});

test("a refused save drops the preview and says why", async () => {
  show(preview());
  platformHandlers.use(
    http.post(apiUrl("/role-rules"), () =>
      respondWithError(409, "ROLE_RULES_CHANGED", "规则已有变化", [
        { field: "fingerprint", code: "ROLE_RULES_CHANGED", message: "规则已有变化。", hint: "请重新预览。" },
      ]),
    ),
  );
  const user = userEvent.setup();
  const dialog = await fillRule(user);
  await user.click(dialog.getByRole("button", { name: "预览" }));
  await waitFor(() => expect(saveButton(dialog).disabled).toBe(false));
  await user.click(saveButton(dialog));
  expect((await dialog.findByRole("alert")).textContent).toBe("规则已有变化。 请重新预览。");
  expect(saveButton(dialog).disabled).toBe(true);
});

test("a refused preview names its field", async () => {
  show(preview());
  platformHandlers.use(
    http.post(apiUrl("/role-rules/preview"), () =>
      respondWithError(400, "ROLE_RULE_PATTERN", "组名不对", [
        { field: "rule.pattern", code: "ROLE_RULE_PATTERN", message: "组名不对。", hint: "" },
      ]),
    ),
  );
  const user = userEvent.setup();
  const dialog = await fillRule(user);
  await user.click(dialog.getByRole("button", { name: "预览" }));
  await dialog.findByText("组名不对。");
  expect(dialog.getByLabelText("组").getAttribute("aria-invalid")).toBe("true");
});

test("a group that was read is chosen by a click", async () => {
  show(preview({ groups: [{ name: "vision", peopleCount: 7 }], groupsTotal: 1 }));
  const user = userEvent.setup();
  const dialog = await fillRule(user);
  await user.click(dialog.getByRole("button", { name: "预览" }));
  await user.click(await dialog.findByText("已读取：3 人的组，以最近一次登录或目录的最近一次更改为准"));
  await user.click(await dialog.findByRole("button", { name: "vision 7" }));
  expect(dialog.getByLabelText<HTMLInputElement>("组").value).toBe("vision");
});

test("a rule of a directory reads names or external ids of its groups", async () => {
  const sent = show(preview({ groups: [{ name: "vision", peopleCount: 0 }], groupsTotal: 1 }));
  const user = userEvent.setup();
  const dialog = await fillRule(user);
  await user.clear(dialog.getByLabelText("组所在的声明"));
  await user.type(dialog.getByLabelText("组所在的声明"), "roles");
  await user.selectOptions(dialog.getByLabelText("组的来源"), await dialog.findByText("Staff"));
  expect(dialog.queryByLabelText("组所在的声明")).toBeNull();
  expect(dialog.getByLabelText<HTMLSelectElement>("识别组的方式").value).toBe("groups");
  await user.selectOptions(dialog.getByLabelText("识别组的方式"), "外部 ID");
  await user.click(dialog.getByRole("button", { name: "预览" }));
  await user.click(await dialog.findByText(/^已读取/));
  await dialog.findByRole("button", { name: "vision 0" });
  expect(sent.at(-1)).toMatchObject(["preview", { rule: { provider: "directory-1", claim: "externalId" } }]);
  await user.selectOptions(dialog.getByLabelText("组的来源"), "Company");
  expect(dialog.getByLabelText<HTMLInputElement>("组所在的声明").value).toBe("groups");
});

test("the list names a rule's directory", async () => {
  show(preview(), { ...rule, provider: "directory-1" });
  const row = (await screen.findByText("ml-…")).closest("tr");
  await waitFor(() => expect(row?.textContent).toMatch(/ml-…groupsStaff/));
});

test("the list says whom a rule reaches and who set it, and deleting shows what it changes", async () => {
  const sent = show(preview({ changes: [change("eve", null, "member")], changesTotal: 1 }), rule);
  const row = (await screen.findByText("ml-…")).closest("tr");
  await waitFor(() => expect(row?.textContent).toMatch(/ml-…groupsCompany默认 成员12root/));
  const user = userEvent.setup();
  await user.click(screen.getByRole("button", { name: "删除 ml-* 的规则" }));
  const dialog = within(await screen.findByRole("dialog"));
  await dialog.findByText("默认：1 人失去访问权限");
  await user.click(dialog.getByRole("button", { name: "删除规则" }));
  await screen.findByText("规则已删除");
  expect(sent.at(-1)).toEqual(["delete", "?fingerprint=f1"]);
});

test("a draft is the rule that it was made of", () => {
  for (const one of [
    rule,
    { ...rule, pattern: "ml", projectId: null, createProject: true },
    { ...rule, pattern: "root", projectId: null, administrator: true, role: "" },
  ]) {
    const { provider, claim, pattern, projectId, createProject, administrator, role } = one;
    expect(buildRule(makeDraft(one))).toEqual({
      provider,
      claim,
      pattern,
      projectId,
      createProject,
      administrator,
      role,
    });
  }
  expect(buildRule(EMPTY_DRAFT).projectId).toBeNull();
});

test("who is no administrator reads why there is no list", async () => {
  platformHandlers.use(http.get(apiUrl("/role-rules"), () => respondWithError(403, "FORBIDDEN", "只有管理员可以")));
  renderAt("/administration/roles");
  await screen.findByText("只有管理员可以");
  expect(screen.queryByRole("button", { name: "添加规则" })).toBeNull();
});

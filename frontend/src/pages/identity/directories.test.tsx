import { screen, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { Directory } from "@/api/directories";
import { apiUrl, me, platformHandlers, respondWith, respondWithError, respondWithList } from "@/test/platform";
import { renderAt } from "@/test/render";

const token = { id: "dtoken-1", createdAt: "2026-11-01T00:00:00Z", createdBy: "root", lastUsedAt: null };
const staff: Directory = {
  id: "directory-1",
  name: "Staff",
  provider: "company",
  uidAttribute: "externalId",
  createdAt: "2026-11-01T00:00:00Z",
  people: 1200,
  groups: 31,
  tokens: [token, { ...token, id: "dtoken-2", lastUsedAt: "2026-11-02T03:04:00Z" }],
};

const LIST = apiUrl("/directories");

function show(...directories: Directory[]) {
  const sent: unknown[] = [];
  const company = { id: "company", name: "Company", kind: "ldap", settings: {}, metadataUrl: null, logoutUrl: null };
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () => respondWith({ ...me, isAdministrator: true })),
    http.get(apiUrl("/identity-providers"), () => respondWithList(company)),
    http.get(LIST, () => respondWithList(...directories)),
    http.post(LIST, async ({ request }) => {
      sent.push(await request.json());
      return respondWith(
        { id: "directory-2", name: "New", path: "/scim/v2", token: { id: "t", token: "fermi_scim_1" } },
        201,
      );
    }),
    http.post(`${LIST}/:id/tokens`, ({ params }) => {
      sent.push(`token of ${String(params.id)}`);
      return respondWith({ id: "t", token: "fermi_scim_2", createdAt: token.createdAt }, 201);
    }),
    http.delete(`${LIST}/:id/tokens/:token`, ({ params }) => {
      sent.push(`revoke ${String(params.token)}`);
      return respondWith(null);
    }),
    http.delete(`${LIST}/:id`, ({ params }) => {
      sent.push(`delete ${String(params.id)}`);
      return respondWith(null);
    }),
  );
  renderAt("/administration/sign-in");
  return sent;
}

const findSection = async () =>
  within((await screen.findByRole("heading", { name: "目录（SCIM）" })).closest("section") as HTMLElement);

test("a directory is added, and the dialog shows its address and its token", async () => {
  const sent = show();
  const section = await findSection();
  await section.findByText("还没有目录");
  await userEvent.click(await section.findByRole("button", { name: "添加目录" }));
  const dialog = within(await screen.findByRole("dialog"));
  expect(dialog.queryByLabelText("识别用户的属性")).toBeNull();
  await userEvent.type(dialog.getByLabelText("名称"), "New");
  await userEvent.selectOptions(dialog.getByLabelText("用户的登录方式"), "Company");
  await userEvent.selectOptions(dialog.getByLabelText("识别用户的属性"), "userName");
  await userEvent.click(dialog.getByRole("button", { name: "添加目录" }));
  await dialog.findByText("fermi_scim_1");
  dialog.getByText(`${location.origin}/scim/v2`);
  expect(sent).toEqual([{ name: "New", provider: "company", uidAttribute: "userName" }]);
  await userEvent.click(dialog.getByText("关闭"));
  expect(screen.queryByText("fermi_scim_1")).toBeNull();
});

test("a refused directory says which field is wrong", async () => {
  show();
  platformHandlers.use(
    http.post(LIST, () =>
      respondWithError(409, "DIRECTORY_NAME_TAKEN", "名称已被使用", [
        { field: "name", code: "DIRECTORY_NAME_TAKEN", message: "名称已被使用。", hint: "" },
      ]),
    ),
  );
  await userEvent.click(await screen.findByRole("button", { name: "添加目录" }));
  const dialog = within(await screen.findByRole("dialog"));
  await userEvent.type(dialog.getByLabelText("名称"), "Staff");
  await userEvent.click(dialog.getByRole("button", { name: "添加目录" }));
  await dialog.findByText("名称已被使用。");
  expect(dialog.getByLabelText("名称").getAttribute("aria-invalid")).toBe("true");
});

test("the list says who is in a directory, by what they sign in, and when it wrote last", async () => {
  show(staff);
  const item = within((await screen.findByRole("heading", { name: "Staff" })).closest("li") as HTMLElement);
  item.getByText("Company");
  item.getByText("1,200 个用户，31 个组");
  const last = item.getByText("最近一次请求").nextElementSibling?.textContent;
  expect(last).toMatch(/2026/);
  item.getByText(`${location.origin}/scim/v2`);
  item.getByText("从未使用");
});

test("a token is made, and another one is revoked after a question", async () => {
  const sent = show(staff);
  await userEvent.click(await screen.findByRole("button", { name: "为 Staff 创建令牌" }));
  const dialog = within(await screen.findByRole("dialog"));
  await userEvent.click(dialog.getByRole("button", { name: "创建令牌" }));
  await dialog.findByText("fermi_scim_2");
  await userEvent.click(dialog.getByText("关闭"));
  await userEvent.click(screen.getAllByRole("button", { name: "撤销" })[0] as HTMLElement);
  const question = within(await screen.findByRole("alertdialog"));
  question.getByText(/请先在目录中填写另一个令牌/);
  await userEvent.click(question.getByRole("button", { name: "撤销" }));
  await screen.findByText("令牌已撤销");
  expect(sent).toEqual(["token of directory-1", "revoke dtoken-1"]);
});

test("the question before revoking the last token says that leavers keep access", async () => {
  show({ ...staff, tokens: [token] });
  await userEvent.click(await screen.findByRole("button", { name: "撤销" }));
  within(await screen.findByRole("alertdialog")).getByText(/离开的人仍可访问/);
});

test("a directory is deleted after a question that says what ends", async () => {
  const sent = show(staff);
  await userEvent.click(await screen.findByRole("button", { name: "删除 Staff" }));
  const question = within(await screen.findByRole("alertdialog"));
  question.getByText(/31 个组.*角色立即失效.*账号保持启用/);
  await userEvent.click(question.getByRole("button", { name: "删除" }));
  await screen.findByText("目录已删除");
  expect(sent).toEqual(["delete directory-1"]);
});

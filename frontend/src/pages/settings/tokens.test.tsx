import { readFileSync } from "node:fs";
import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import { apiUrl, buildUser, platformHandlers, respondWith, respondWithList } from "@/test/platform";
import { renderAt } from "@/test/render";
import { findPreset, PRESETS, SCOPES, toggleScope } from "./token-scopes";

const token = {
  id: "0123456789abcdef",
  name: "nightly",
  createdAt: "2026-11-21T05:00:00Z",
  expiresAt: null,
  scopes: null,
  projects: null,
  tasks: null,
  lastUsedAt: null,
  lastUsedFrom: "",
};
const narrow = {
  ...token,
  id: "fedcba9876543210",
  name: "curves",
  scopes: [...PRESETS.notebook],
  projects: ["project-1"],
  lastUsedAt: "2026-11-22T05:00:00Z",
  lastUsedFrom: "192.0.2.7",
};

const closeDialog = () => userEvent.keyboard("{Escape}");

test("a token is made with a preset and a project, and its value is shown", async () => {
  const sent: unknown[] = [];
  platformHandlers.use(
    http.post(apiUrl("/tokens"), async ({ request }) => {
      sent.push(await request.json());
      return respondWith({ ...token, token: "fermi_once" });
    }),
  );
  renderAt("/settings");
  await userEvent.click(await screen.findByRole("button", { name: "创建令牌" }));
  const dialog = await screen.findByRole("dialog");
  await userEvent.type(within(dialog).getByLabelText("用途"), "ci");
  await userEvent.selectOptions(within(dialog).getByLabelText("权限"), "pipeline");
  await userEvent.click(within(dialog).getByRole("checkbox", { name: "密钥（从不返回值）: 读取" }));
  expect(within(dialog).getByLabelText<HTMLSelectElement>("权限").value).toBe("own");
  await userEvent.click(within(dialog).getByRole("checkbox", { name: "默认" }));
  await userEvent.click(within(dialog).getByRole("button", { name: "创建" }));
  await within(dialog).findByText("fermi_once");
  expect(sent).toEqual([
    { name: "ci", expiresInDays: 90, scopes: [...PRESETS.pipeline, "secrets:read"], projects: ["project-1"] },
  ]);
  await closeDialog();
  await userEvent.click(await screen.findByRole("button", { name: "创建令牌" }));
  expect(screen.queryByText("fermi_once")).toBeNull();
});

test("tokens are listed with their rights and last use, and several are revoked together", async () => {
  const sent: unknown[] = [];
  platformHandlers.use(
    http.get(apiUrl("/tokens"), () => respondWithList(...(sent.length ? [] : [token, narrow]))),
    http.post(apiUrl("/tokens/revoke"), async ({ request }) => {
      sent.push(await request.json());
      return respondWith({ count: 2 });
    }),
  );
  renderAt("/settings");
  const list = await screen.findByRole("list", { name: "API 令牌" });
  await within(list).findByText("nightly");
  const [all, part] = within(list).getAllByRole("listitem");
  expect(all?.textContent).toContain("全部权限");
  expect(all?.textContent).toContain("从未使用");
  expect(part?.textContent).toContain("笔记本");
  expect(part?.textContent).toContain("仅限 默认");
  expect(part?.textContent).toContain("来自 192.0.2.7");
  await userEvent.click(screen.getByRole("checkbox", { name: "全选" }));
  await userEvent.click(screen.getByRole("button", { name: "撤销所选（2）" }));
  await userEvent.click(within(await screen.findByRole("alertdialog")).getByRole("button", { name: "撤销" }));
  await screen.findByText("还没有令牌。");
  expect(sent).toEqual([{ ids: [token.id, narrow.id] }]);
});

test("a maintainer makes a service account and a token for it, and deletes it", async () => {
  const sent: unknown[] = [];
  const ci = { name: "ci", username: "ci@project-1", role: "member", createdAt: token.createdAt, tokens: 0 };
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () => respondWith(buildUser("maintainer"))),
    http.get(apiUrl("/projects/:id/members"), () => respondWithList({ username: "ci@project-1", role: "member" })),
    http.get(apiUrl("/projects/project-1/service-accounts"), () => respondWithList(...(sent.length ? [ci] : []))),
    http.get(apiUrl("/projects/project-1/tokens"), () => respondWithList({ ...narrow, username: "ci@project-1" })),
    http.post(apiUrl("/projects/project-1/service-accounts"), async ({ request }) => {
      sent.push(await request.json());
      return respondWith(ci);
    }),
    http.post(apiUrl("/projects/project-1/service-accounts/ci/tokens"), async ({ request }) => {
      sent.push(await request.json());
      return respondWith({ ...token, token: "fermi_ci" });
    }),
    http.delete(apiUrl("/projects/project-1/service-accounts/ci"), () => {
      sent.push("deleted");
      return respondWith(null);
    }),
  );
  renderAt("/settings");
  await userEvent.click(await screen.findByRole("button", { name: "创建服务账号" }));
  const dialog = await screen.findByRole("dialog");
  await userEvent.type(within(dialog).getByLabelText("名称"), "ci");
  await userEvent.click(within(dialog).getByRole("button", { name: "创建" }));
  const list = await screen.findByRole("list", { name: "服务账号" });
  await within(list).findByText("ci");
  expect(within(screen.getByRole("list", { name: "成员" })).queryByText("ci@project-1")).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "为 ci 创建令牌" }));
  const form = await screen.findByRole("dialog");
  await userEvent.type(within(form).getByLabelText("用途"), "deploy");
  await userEvent.click(within(form).getByRole("button", { name: "创建" }));
  await within(form).findByText("fermi_ci");
  await closeDialog();
  await screen.findByText("本项目的令牌（1）");
  await userEvent.click(await screen.findByRole("button", { name: "删除服务账号：ci" }));
  await userEvent.click(within(await screen.findByRole("alertdialog")).getByRole("button", { name: "移除" }));
  await waitFor(() => expect(sent).toHaveLength(3));
  expect(sent).toEqual([
    { name: "ci", role: "member" },
    { name: "deploy", expiresInDays: 90, scopes: PRESETS.pipeline },
    "deleted",
  ]);
});

test("a member sees no service accounts", async () => {
  renderAt("/settings");
  await screen.findByRole("list", { name: "成员" });
  expect(screen.queryByRole("button", { name: "创建服务账号" })).toBeNull();
});

test("the picker offers the scopes that the API's operations ask for", () => {
  const document = readFileSync("../docs/openapi.json", "utf8");
  const asked = new Set([...document.matchAll(/"x-scope": "([^"]+:[^"]+)"/g)].map((found) => found[1] ?? ""));
  expect([...asked].filter((scope) => !SCOPES.includes(scope))).toEqual([]);
});

test("changing contains reading", () => {
  expect(toggleScope(["tasks:read"], "tasks:write", true)).toEqual(["tasks:write"]);
  expect(toggleScope(["tasks:read", "runs:read"], "runs:read", false)).toEqual(["tasks:read"]);
  expect(findPreset(["outputs:read", "tasks:read", "runs:read"])).toBe("notebook");
  expect(findPreset(["tasks:read"])).toBeUndefined();
});

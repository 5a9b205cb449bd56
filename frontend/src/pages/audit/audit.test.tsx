import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import { type AuditEvent, buildAuditExportUrl } from "@/api/audit";
import { apiUrl, buildUser, me, platformHandlers, respondWith, respondWithList } from "@/test/platform";
import { renderAt } from "@/test/render";

const event = (over: Partial<AuditEvent>): AuditEvent => ({
  id: 7,
  at: "2026-11-20T05:00:00Z",
  actor: "lee",
  project: "project-1",
  action: "task.create",
  actionText: "创建了任务",
  target: "task-9",
  data: { name: "night run" },
  requestId: "req-7",
  token: "0123456789abcdef",
  tokenName: "ci",
  address: "192.0.2.7",
  ...over,
});

function useEvents(user: object, ...pages: AuditEvent[][]) {
  const requests: Record<string, string>[] = [];
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () => respondWith(user)),
    http.get(apiUrl("/audit-events/actions"), () =>
      respondWith({ items: [{ action: "task.create", text: "创建了任务" }] }),
    ),
    http.get(apiUrl("/audit-events"), ({ request }) => {
      const query = Object.fromEntries(new URL(request.url).searchParams);
      requests.push(query);
      const page = Number(query.cursor || 0);
      const nextCursor = page + 1 < pages.length ? String(page + 1) : null;
      return respondWith({ items: pages[page] ?? [], total: null, page: null, pageSize: 50, nextCursor });
    }),
  );
  return requests;
}

test("events come page after page, and one unfolds to its details", async () => {
  useEvents(
    { ...me, isAdministrator: true },
    [event({}), event({ id: 6, actor: null, token: "", action: "budget.warned", actionText: "发出了预算警告" })],
    [event({ id: 5, actor: "ann", target: "task-1" })],
  );
  renderAt("/audit");
  const user = userEvent.setup();
  await screen.findAllByText("lee");
  const [, first, second] = screen.getAllByRole("row").map((row) => row.textContent);
  expect(first).toMatch(/lee令牌 ci创建了任务.*task-9默认/);
  expect(second).toMatch(/平台发出了预算警告/);
  await user.click(screen.getByRole("button", { name: "更早的事件" }));
  await screen.findAllByText("ann");
  screen.getByText("3 个事件，没有更早的了");
  expect(screen.queryByText("req-7")).toBeNull();
  await user.click(screen.getByRole("button", { name: "详情：创建了任务，task-9" }));
  await screen.findByText("req-7");
  expect(screen.getByLabelText("data.json").textContent).toContain("night run");
  expect(screen.getByRole("link", { name: "打开任务" }).getAttribute("href")).toBe("/training/task-9");
  const only = screen.getByRole("link", { name: "ci (0123456789abcdef)" });
  expect(only.getAttribute("href")).toBe("/audit?token=0123456789abcdef");
});

test("filters are in the address and go to the platform and to the export", async () => {
  const requests = useEvents({ ...me, isAdministrator: true }, [event({})]);
  const { address } = renderAt("/audit?actor=lee&begin=2026-11-01T00:00:00.000Z");
  const user = userEvent.setup();
  await screen.findByRole("link", { name: "导出" });
  expect(requests[0]).toEqual({ actor: "lee", begin: "2026-11-01T00:00:00.000Z", cursor: "", pageSize: "50" });
  await screen.findByRole("option", { name: "创建了任务" });
  await user.selectOptions(screen.getByLabelText("操作"), "创建了任务");
  await waitFor(() => expect(requests.at(-1)).toMatchObject({ actor: "lee", action: "task.create" }));
  expect(address()).toContain("action=task.create");
  const href = screen.getByRole("link", { name: "导出" }).getAttribute("href") ?? "";
  const query = Object.fromEntries(new URL(href, location.origin).searchParams);
  expect(query).toMatchObject({ actor: "lee", action: "task.create", begin: "2026-11-01T00:00:00.000Z" });
  expect(query.end).toBeTruthy();
  await user.click(screen.getByRole("button", { name: "清除筛选" }));
  await waitFor(() => expect(address()).toBe("/audit"));
});

test("an export without a span is of the longest one that the platform gives", () => {
  const now = Date.parse("2026-11-29T00:00:00Z");
  const query = new URLSearchParams(buildAuditExportUrl({ project: "p" }, now).split("?")[1]);
  expect(Object.fromEntries(query)).toEqual({
    project: "p",
    begin: "2025-11-28T00:00:00.000Z",
    end: "2026-11-29T00:00:00.000Z",
  });
});

test("who maintains nothing has no export, and reads who sees events", async () => {
  useEvents(me, []);
  renderAt("/audit");
  await screen.findByText("维护者可以查看其项目中的事件。");
  expect(screen.queryByRole("link", { name: "导出" })).toBeNull();
});

test("a maintainer gets from a project and a token of theirs to their events", async () => {
  useEvents(buildUser("maintainer"), [event({})]);
  platformHandlers.use(
    http.get(apiUrl("/tokens"), () =>
      respondWithList({
        id: "0123456789abcdef",
        name: "ci",
        createdAt: "2026-11-01T00:00:00Z",
        expiresAt: null,
        lastUsedAt: null,
        lastUsedFrom: "",
        scopes: null,
        projects: null,
        tasks: null,
      }),
    ),
  );
  const { address } = renderAt("/settings");
  const list = await screen.findByRole("list", { name: "API 令牌" });
  const link = await within(list).findByRole("link", { name: "事件" });
  expect(link.getAttribute("href")).toBe("/audit?token=0123456789abcdef");
  await userEvent.click(await screen.findByRole("link", { name: "审计记录" }));
  await screen.findAllByText("lee");
  expect(address()).toBe("/audit?project=project-1");
});

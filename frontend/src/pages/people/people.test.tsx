import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { Person } from "@/api/types";
import { apiUrl, me, platformHandlers, respondWith } from "@/test/platform";
import { renderAt } from "@/test/render";

const person = (over: Partial<Person>): Person => ({
  username: "lee",
  name: "",
  email: "lee@example.org",
  isActive: true,
  isAdministrator: false,
  isOperator: false,
  isService: false,
  hasPassword: true,
  hasSecondFactor: false,
  providers: [],
  createdAt: "2026-11-01T00:00:00Z",
  lastSignInAt: null,
  projects: [{ id: "project-one", name: "one", role: "maintainer", source: "person" }],
  ...over,
});

function usePeople(...items: Person[]) {
  const asked: URLSearchParams[] = [];
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () => respondWith({ ...me, isAdministrator: true })),
    http.get(apiUrl("/people"), ({ request }) => {
      asked.push(new URL(request.url).searchParams);
      return respondWith({ items, total: items.length, page: 1, pageSize: 50 });
    }),
  );
  return asked;
}

test("people with their rights, roles and ways to sign in", async () => {
  usePeople(
    person({}),
    person({ username: "ann", isAdministrator: true, providers: ["company"], hasSecondFactor: true }),
    person({ username: "gone", isActive: false, hasPassword: false, projects: [] }),
  );
  renderAt("/people");
  await screen.findByText("lee");
  const [, lee, ann, gone] = screen.getAllByRole("row").map((row) => row.textContent);
  expect(lee).toMatch(/lee.*lee@example\.org.*one 维护者?.*密码.*从未/s);
  expect(ann).toMatch(/管理员.*密码 · company.*两步验证/s);
  expect(gone).toMatch(/已停用.*已邀请，尚未使用/s);
});

test("who has signed in by links alone is not shown as invited", async () => {
  usePeople(person({ hasPassword: false, lastSignInAt: "2026-11-20T05:00:00Z" }));
  renderAt("/people");
  await screen.findByText("lee");
  expect(screen.getAllByRole("row")[1]?.textContent).toMatch(/一次性链接/);
});

test("deactivating is confirmed first", async () => {
  usePeople(person({}));
  const sent: unknown[] = [];
  platformHandlers.use(
    http.patch(apiUrl("/people/lee"), async ({ request }) => {
      sent.push(await request.json());
      return respondWith(person({ isActive: false }));
    }),
  );
  renderAt("/people");
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: "lee 的操作" }));
  await user.click(await screen.findByRole("menuitem", { name: "停用" }));
  const dialog = await screen.findByRole("dialog", { name: "停用 lee？" });
  expect(sent).toEqual([]);
  await user.click(within(dialog).getByRole("button", { name: "继续" }));
  await waitFor(() => expect(sent).toEqual([{ isActive: false }]));
});

test("a new account comes with a link that is shown once", async () => {
  usePeople(person({}));
  platformHandlers.use(
    http.post(apiUrl("/people"), () =>
      respondWith({
        person: person({ username: "new" }),
        invitation: { path: "/auth/link/abc", expiresAt: "2026-12-01T00:00:00Z" },
      }),
    ),
  );
  renderAt("/people");
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: "新建账号" }));
  const dialog = await screen.findByRole("dialog", { name: "新建账号" });
  await user.type(within(dialog).getByRole("textbox", { name: "用户名" }), "new");
  await user.click(within(dialog).getByRole("button", { name: "新建账号" }));
  expect(await within(dialog).findByText(/\/auth\/link\/abc$/)).toBeTruthy();
});

test("filters go to the platform", async () => {
  const asked = usePeople(person({}));
  renderAt("/people?kind=service&state=inactive&search=ci");
  await screen.findByText("lee");
  expect(Object.fromEntries(asked[0] ?? [])).toMatchObject({ service: "true", active: "false", search: "ci" });
});

import { cleanup, screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { ProjectSummary } from "@/api/types";
import { apiUrl, me, platformHandlers, respondWith, respondWithError, respondWithList } from "@/test/platform";
import { renderAt } from "@/test/render";

const project = (over: Partial<ProjectSummary>): ProjectSummary => ({
  id: "project-one",
  name: "one",
  role: "maintainer",
  warm: false,
  createdAt: "2026-11-01T00:00:00Z",
  members: 3,
  serviceAccounts: 1,
  runningTasks: 2,
  gpus: 1024,
  ...over,
});

const asAdministrator = () =>
  platformHandlers.use(http.get(apiUrl("/auth/me"), () => respondWith({ ...me, isAdministrator: true })));

function useProjects(...items: ProjectSummary[]) {
  const asked: URLSearchParams[] = [];
  platformHandlers.use(
    http.get(apiUrl("/overview/projects"), ({ request }) => {
      asked.push(new URL(request.url).searchParams);
      return respondWithList(...items);
    }),
  );
  return asked;
}

function useProject(over: Partial<ProjectSummary> = {}) {
  const { id, name, role, warm, createdAt } = project(over);
  platformHandlers.use(
    http.get(apiUrl("/projects/project-one"), () => respondWith({ id, name, role, warm, createdAt })),
    http.get(apiUrl("/projects/project-one/members"), () => respondWithList({ username: "lee", role: "member" })),
    ...["secrets", "service-accounts", "tokens", "exchange-rules"].map((part) =>
      http.get(apiUrl(`/projects/project-one/${part}`), () => respondWithList()),
    ),
  );
}

test("each project has its counts, its page and its queue", async () => {
  asAdministrator();
  useProjects(project({}), project({ id: "project-two", name: "two", members: 0 }));
  renderAt("/administration/projects");
  const link = await screen.findByRole("link", { name: "one" });
  expect(link.getAttribute("href")).toBe("/administration/projects/project-one");
  expect(screen.getByRole("link", { name: "one 的队列" }).getAttribute("href")).toBe("/queue?project=project-one");
  const one = screen.getByRole("row", { name: /^one/ });
  expect(
    within(one)
      .getAllByRole("cell")
      .slice(0, 5)
      .map((cell) => cell.textContent),
  ).toEqual(["oneproject-one", "3", "1", "2", "1,024"]);
  expect(screen.getByText("2 个项目")).toBeTruthy();
});

test("search, order and page go to the platform", async () => {
  const asked = useProjects(project({}));
  renderAt("/administration/projects?search=on&ordering=-createdAt&page=2");
  await screen.findByRole("link", { name: "one" });
  expect(Object.fromEntries(asked[0] ?? [])).toMatchObject({ search: "on", ordering: "-createdAt", page: "2" });
});

test("only administrators are offered to create a project; the list has it afterwards", async () => {
  useProjects(project({}));
  renderAt("/administration/projects");
  await screen.findByRole("link", { name: "one" });
  expect(screen.queryByRole("button", { name: "创建项目" })).toBeNull();
  cleanup();

  asAdministrator();
  const asked = useProjects(project({}));
  const sent: unknown[] = [];
  platformHandlers.use(
    http.post(apiUrl("/projects"), async ({ request }) => {
      sent.push(await request.json());
      return respondWith(project({}), 201);
    }),
  );
  renderAt("/administration/projects");
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: "创建项目" }));
  const dialog = await screen.findByRole("dialog", { name: "创建项目" });
  const before = asked.length;
  await user.type(within(dialog).getByRole("textbox", { name: "项目名称" }), "vision");
  await user.click(within(dialog).getByRole("button", { name: "创建" }));
  await waitFor(() => expect(sent).toEqual([{ name: "vision" }]));
  await waitFor(() => expect(asked.length).toBeGreaterThan(before));
});

test("a project's page edits its members, and renames it; a taken name is shown at the field", async () => {
  asAdministrator();
  useProject();
  const changes: unknown[] = [];
  platformHandlers.use(
    http.patch(apiUrl("/projects/project-one/members/lee"), async ({ request }) => {
      changes.push(await request.json());
      return respondWith({ username: "lee", role: "viewer" });
    }),
    http.patch(apiUrl("/projects/project-one"), () =>
      respondWithError(409, "PROJECT_NAME_TAKEN", "已被占用", [
        { field: "name", error: "PROJECT_NAME_TAKEN", message: "项目 two 已存在。", hint: "" },
      ]),
    ),
  );
  renderAt("/administration/projects/project-one");
  const user = userEvent.setup();
  await user.selectOptions(await screen.findByRole("combobox", { name: "lee 的角色" }), "viewer");
  await waitFor(() => expect(changes).toEqual([{ role: "viewer" }]));
  await user.click(screen.getByRole("button", { name: "重命名" }));
  const dialog = await screen.findByRole("dialog", { name: "重命名 one" });
  const name = within(dialog).getByRole("textbox", { name: "项目名称" });
  await user.clear(name);
  await user.type(name, "two");
  await user.click(within(dialog).getByRole("button", { name: "重命名" }));
  expect(await within(dialog).findByText("项目 two 已存在。")).toBeTruthy();
});

test("deleting is confirmed first, and leads back to the list", async () => {
  asAdministrator();
  useProjects(project({ id: "project-two", name: "two" }));
  useProject();
  const deleted: string[] = [];
  platformHandlers.use(
    http.delete(apiUrl("/projects/:id"), ({ params }) => {
      deleted.push(String(params.id));
      return respondWith(null);
    }),
  );
  const page = renderAt("/administration/projects/project-one");
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: "删除" }));
  const dialog = await screen.findByRole("alertdialog", { name: "删除 one？" });
  expect(deleted).toEqual([]);
  await user.click(within(dialog).getByRole("button", { name: "删除" }));
  await waitFor(() => expect(page.address()).toBe("/administration/projects"));
  expect(deleted).toEqual(["project-one"]);
});

test("who is no maintainer changes nothing on a project's page", async () => {
  useProject();
  renderAt("/administration/projects/project-one");
  expect(await screen.findByText("lee")).toBeTruthy();
  for (const name of ["重命名", "删除", "添加成员"]) expect(screen.queryByRole("button", { name })).toBeNull();
});

import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import { task } from "@/test/fixtures";
import { apiUrl, respondWithList, respondWith, platformHandlers, respondWithError } from "@/test/platform";
import { renderAt } from "@/test/render";
import { setFilter } from "@/lib/url-filters";
import { readFilters } from "./filters";

test("the list shows tasks with their state and links to them", async () => {
  renderAt("/training");
  const link = await screen.findByRole("link", { name: "first-task" });
  expect(link.getAttribute("href")).toBe("/training/task-1");
  expect(screen.getByText("训练中", { selector: "td *" })).toBeTruthy();
});

test("an empty list leads to the create page", async () => {
  platformHandlers.use(http.get(apiUrl("/training-tasks"), () => respondWithList()));
  renderAt("/training");
  await screen.findByText("还没有训练任务");
  expect(screen.getAllByRole("link", { name: "创建训练任务" })).toHaveLength(2);
});

test("of very many tasks, as many pages are offered as the platform turns over", async () => {
  const many = { items: [task], total: 5000, totalIsExact: false, page: 1, pageSize: 20, nextCursor: "next" };
  platformHandlers.use(http.get(apiUrl("/training-tasks"), () => respondWith(many)));
  renderAt("/training");
  await screen.findByText("超过 5,000 个任务");
  expect(screen.getByText(/250/)).toBeTruthy();
});

test("filters live in the address and are sent to the server", async () => {
  const asked: string[] = [];
  platformHandlers.use(
    http.get(apiUrl("/training-tasks"), ({ request }) => {
      asked.push(new URL(request.url).search);
      return respondWithList(task);
    }),
  );
  const page = renderAt("/training");
  await userEvent.selectOptions(await screen.findByLabelText("状态"), "failed");
  await userEvent.type(screen.getByLabelText("按名称或编号搜索"), "gpt");
  await waitFor(() => expect(page.address()).toBe("/training?status=failed&search=gpt"));
  await waitFor(() => expect(asked.at(-1)).toContain("status=failed&search=gpt"));
});

test("tasks are found by parameters of their scripts, several at once", async () => {
  const asked: string[][] = [];
  platformHandlers.use(
    http.get(apiUrl("/training-tasks"), ({ request }) => {
      asked.push(new URL(request.url).searchParams.getAll("parameter"));
      return respondWithList(task);
    }),
  );
  const page = renderAt("/training?parameter=optimizer%3Dadamw");
  await userEvent.type(await screen.findByLabelText(/^脚本的参数/), "lr>0.001{Enter}");
  await waitFor(() => expect(asked.at(-1)).toEqual(["optimizer=adamw", "lr>0.001"]));
  await userEvent.click(screen.getByRole("button", { name: "不限 optimizer=adamw" }));
  await waitFor(() => expect(asked.at(-1)).toEqual(["lr>0.001"]));
  expect(page.address()).toBe("/training?parameter=lr%3E0.001");
});

test("a list that cannot be loaded says why and can be tried again", async () => {
  platformHandlers.use(http.get(apiUrl("/training-tasks"), () => respondWithError(400, "INVALID_REQUEST", "请求有误")));
  renderAt("/training");
  const alert = await screen.findByRole("alert");
  expect(alert.textContent).toContain("请求有误");
  expect(alert.textContent).toContain("请求号 req-1");
  platformHandlers.resetHandlers();
  await userEvent.click(screen.getByRole("button", { name: "重试" }));
  await screen.findByRole("link", { name: "first-task" });
});

test("a session that ended leads back to signing in", async () => {
  const page = renderAt("/training");
  await screen.findByRole("link", { name: "first-task" });
  platformHandlers.use(http.all(apiUrl("/*"), () => respondWithError(401, "NOT_AUTHENTICATED", "请先登录")));
  await userEvent.selectOptions(screen.getByLabelText("状态"), "failed");
  await screen.findByRole("button", { name: "登录" });
  expect(page.address()).toBe("/sign-in?next=%2Ftraining%3Fstatus%3Dfailed");
});

test("the language is one click away and asks the server again", async () => {
  const languages: (string | null)[] = [];
  platformHandlers.use(
    http.get(apiUrl("/training-tasks"), ({ request }) => {
      languages.push(request.headers.get("accept-language"));
      return respondWithList(task);
    }),
  );
  renderAt("/training");
  await userEvent.click(await screen.findByRole("button", { name: "Switch to English" }));
  await screen.findByRole("heading", { name: "Training tasks" });
  await waitFor(() => expect(languages.at(-1)).toBe("en"));
  expect(document.documentElement.lang).toBe("en");
  expect(document.cookie).toContain("django_language=en");
});

test("a filter that is not one is passed over, and a new filter starts at the first page", () => {
  expect(readFilters(new URLSearchParams("status=nonsense&page=-1"))).toEqual({ page: 1 });
  expect(setFilter(new URLSearchParams("page=3&search=a"), "search", "b").toString()).toBe("search=b");
  expect(setFilter(new URLSearchParams("page=3"), "page", "4").toString()).toBe("page=4");
});

test("a press on a heading orders the list, another turns it round, and a third leaves it as it comes", async () => {
  const asked: (string | null)[] = [];
  platformHandlers.use(
    http.get(apiUrl("/training-tasks"), ({ request }) => {
      asked.push(new URL(request.url).searchParams.get("ordering"));
      return respondWithList(task);
    }),
  );
  const page = renderAt("/training?status=running&page=3");
  const heading = () => screen.findByRole("columnheader", { name: "步数" });
  for (const [sort, ordering] of [
    ["descending", "-step"],
    ["ascending", "step"],
    ["none", null],
  ] as const) {
    await userEvent.click(within(await heading()).getByRole("button"));
    await waitFor(() => expect(asked.at(-1)).toBe(ordering));
    expect((await heading()).getAttribute("aria-sort")).toBe(sort);
  }
  expect(page.address()).toBe("/training?status=running");
});

test("an order and columns come from the address, and nonsense is passed over", async () => {
  renderAt("/training?ordering=secret&hide=owner,nonsense");
  await screen.findByRole("columnheader", { name: "损失" });
  expect(screen.queryByRole("columnheader", { name: "创建者" })).toBeNull();
  await userEvent.click(screen.getByText("列"));
  await userEvent.click(screen.getByRole("checkbox", { name: "创建者" }));
  await screen.findByRole("columnheader", { name: "创建者" });
});

test("a task that waits says where it stands in the queue, and one that runs how far it is", async () => {
  platformHandlers.use(
    http.get(apiUrl("/training-tasks"), () =>
      respondWithList(
        { ...task, step: 250, totalSteps: 1000, estimatedEndAt: new Date(Date.now() + 7.2 * 60_000).toISOString() },
        { ...task, taskId: "task-2", taskName: "second", status: "queued", step: null },
      ),
    ),
    http.get(apiUrl("/queue"), () => respondWithList({ taskId: "task-2", number: 7 })),
  );
  renderAt("/training");
  const waiting = await screen.findByRole("row", { name: /second/ });
  await within(waiting).findAllByText("队列第 7 位");
  const [bar] = screen.getAllByRole("progressbar", { name: "first-task" });
  expect(bar?.getAttribute("aria-valuenow")).toBe("25");
  expect(screen.getAllByText("预计还需 7分").length).toBeGreaterThan(0);
});

test("compact rows are remembered", async () => {
  renderAt("/training");
  const list = await screen.findByRole("group", { name: "训练任务" });
  expect(list.dataset.dense).toBeUndefined();
  await userEvent.click(screen.getByRole("button", { name: "紧凑行" }));
  expect(list.dataset.dense).toBe("");
  expect(localStorage.getItem("fermi.dense")).toBe("on");
  await userEvent.click(screen.getByRole("button", { name: "紧凑行", pressed: true }));
  expect(localStorage.getItem("fermi.dense")).toBeNull();
});

test("filters, order and columns are kept under a name, and come back by it", async () => {
  const stored: object[] = [];
  platformHandlers.use(
    http.get(apiUrl("/saved-views"), () => respondWithList(...stored)),
    http.post(apiUrl("/saved-views"), async ({ request }) => {
      stored.push({ ...((await request.json()) as object), id: "view-1" });
      return respondWith(stored[0], 201);
    }),
    http.delete(apiUrl("/saved-views/view-1"), () => {
      stored.length = 0;
      return respondWith({});
    }),
  );
  const page = renderAt("/training?status=running&ordering=-step&hide=owner&page=2");
  await userEvent.click(await screen.findByText("视图"));
  await userEvent.type(await screen.findByRole("textbox", { name: "视图名称" }), "running ones{Enter}");
  const view = await screen.findByRole("link", { name: "running ones" });
  expect(stored).toMatchObject([{ section: "training", query: "hide=owner&ordering=-step&status=running" }]);
  expect(view.getAttribute("aria-current")).toBe("true");
  await userEvent.selectOptions(screen.getByLabelText("状态"), "failed");
  await userEvent.type(screen.getByRole("searchbox"), "gpt");
  await waitFor(() => expect(page.address()).toContain("search=gpt"));
  await userEvent.click(screen.getByText("视图"));
  await userEvent.click(await screen.findByRole("link", { name: "running ones" }));
  await waitFor(() => expect(page.address()).toBe("/training?hide=owner&ordering=-step&status=running"));
  expect(screen.getByRole("searchbox")).toHaveProperty("value", "");
  await userEvent.click(screen.getByText("视图"));
  await userEvent.click(await screen.findByRole("button", { name: "删除视图 running ones" }));
  await screen.findByText(/还没有保存的视图/);
});

test("several tasks are stopped at once, and each says how it went, also when a filter hides it then", async () => {
  const names = ["a", "b", "c"];
  const stopped = new Set<unknown>();
  platformHandlers.use(
    http.get(apiUrl("/training-tasks"), () =>
      respondWithList(
        ...names
          .map((name) => ({ ...task, taskId: `task-${name}`, taskName: name }))
          .filter(({ taskId }) => !stopped.has(taskId)),
        { ...task, taskId: "task-over", taskName: "over", allowedActions: ["clone"] },
      ),
    ),
    http.post(apiUrl("/training-tasks/:id/stop"), ({ params }) => {
      if (params.id === "task-b") return respondWithError(403, "FORBIDDEN", "没有权限");
      stopped.add(params.id);
      return respondWith({});
    }),
  );
  renderAt("/training?status=running");
  const over = await screen.findByRole("checkbox", { name: "选择 over" });
  expect((over as HTMLInputElement).disabled).toBe(true);
  await userEvent.click(screen.getByRole("checkbox", { name: "选择本页全部" }));
  await userEvent.click(screen.getByRole("checkbox", { name: "选择 c" }));
  screen.getByText("已选 2 个");
  await userEvent.click(screen.getByRole("button", { name: "停止所选" }));
  const dialog = await screen.findByRole("alertdialog", { name: "停止这 2 个训练任务？" });
  await userEvent.click(within(dialog).getByRole("button", { name: "停止" }));
  const result = await screen.findByRole("region", { name: "批量停止的结果" });
  await within(result).findByText("没有权限");
  await waitFor(() => expect(screen.queryByRole("checkbox", { name: "选择 a" })).toBeNull());
  const lines = within(result)
    .getAllByRole("listitem")
    .map(({ textContent }) => textContent);
  expect(lines.toSorted()).toEqual(["a正在停止", "b没有权限"]);
  expect(within(result).getByRole("link", { name: "a" }).getAttribute("href")).toBe("/training/task-a");
  expect(within(result).getByRole("status").textContent).toBe("已要求停止 1 个任务，1 个未能停止");
  await userEvent.click(within(result).getByRole("button", { name: "关闭" }));
  expect(screen.queryByRole("region", { name: "批量停止的结果" })).toBeNull();
});

test("of the selected tasks, those that have ended are deleted together", async () => {
  const gone = new Set<unknown>();
  const of = (name: string, ...allowedActions: string[]) => ({
    ...task,
    taskId: `task-${name}`,
    taskName: name,
    allowedActions,
  });
  const all = [of("a", "retry", "delete"), of("b", "retry", "delete"), of("runs", "stop")];
  platformHandlers.use(
    http.get(apiUrl("/training-tasks"), () => respondWithList(...all.filter(({ taskId }) => !gone.has(taskId)))),
    http.delete(apiUrl("/training-tasks/:id"), ({ params }) => {
      if (params.id === "task-b") return respondWithError(409, "CHECKPOINTS_IN_USE", "检查点正在使用");
      gone.add(params.id);
      return respondWith(null);
    }),
  );
  renderAt("/training");
  await screen.findByRole("checkbox", { name: "选择 a" });
  await userEvent.click(screen.getByRole("checkbox", { name: "选择本页全部" }));
  screen.getByText("已选 3 个");
  await userEvent.click(screen.getByRole("button", { name: "删除所选" }));
  const dialog = await screen.findByRole("alertdialog", { name: "删除这 2 个训练任务？" });
  await userEvent.click(within(dialog).getByRole("button", { name: "删除" }));
  const result = await screen.findByRole("region", { name: "批量删除的结果" });
  await within(result).findByText("检查点正在使用");
  await waitFor(() => expect(within(result).getAllByRole("listitem")).toHaveLength(2));
  expect(within(result).getByRole("status").textContent).toBe("已删除 1 个任务，1 个未能删除");
  expect(within(result).queryByRole("link", { name: "a" })).toBeNull();
  expect(within(result).getByRole("link", { name: "b" })).toBeTruthy();
  expect(gone).toEqual(new Set(["task-a"]));
});

test("a viewer is offered no stop", async () => {
  platformHandlers.use(http.get(apiUrl("/training-tasks"), () => respondWithList({ ...task, allowedActions: [] })));
  renderAt("/training");
  expect(await screen.findByRole("checkbox", { name: "选择 first-task" })).toHaveProperty("disabled", true);
  expect(screen.queryByRole("button", { name: "停止所选" })).toBeNull();
});

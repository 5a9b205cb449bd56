import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Run, RunBulkRequest, RunViewRequest } from "@/api/types";
import { apiUrl, buildUser, platformHandlers, respondWith, respondWithError, respondWithList } from "@/test/platform";
import { renderAt } from "@/test/render";
import { buildRun, COLUMNS } from "./fixtures";

const RUNS = [
  buildRun("alpha", { status: "running", loss: 2, "param.lr": 0.001, "metric.val_loss.best": 3 }, { tags: ["base"] }),
  buildRun("beta", { status: "failed", loss: 4, "param.lr": 0.01, "metric.val_loss.best": 2 }),
  buildRun("gamma", { status: "succeeded", loss: 3, "param.lr": "auto", "metric.val_loss.best": null }),
];

const page = (runs: Run[], over = {}) => ({
  items: runs,
  nextCursor: null,
  total: runs.length,
  totalIsExact: true,
  searched: { complete: true, tasks: runs.length },
  unknownNames: [] as string[],
  ...over,
});

/** Searches of the table, without those of single runs. */
const asked: URLSearchParams[] = [];
let found = RUNS;

beforeEach(() => {
  asked.length = 0;
  found = RUNS;
  platformHandlers.use(
    http.get(apiUrl("/runs"), ({ request }) => {
      const params = new URL(request.url).searchParams;
      const ids = /^id:(.*)$/.exec(params.get("query") ?? "")?.[1]?.split(",");
      if (ids) return respondWith(page(RUNS.filter(({ task }) => ids.includes(task.taskId))));
      asked.push(params);
      return respondWith(page(found));
    }),
    http.get(apiUrl("/runs/columns"), () => respondWith({ items: COLUMNS })),
    http.get(apiUrl("/runs/complete"), () => respondWith({ from: 0, to: 0, items: [] })),
    http.get(apiUrl("/run-views"), () => respondWithList()),
  );
});
afterEach(() => localStorage.removeItem("fermi.runs.view"));

const row = (name: string) => screen.findByRole("row", { name: new RegExp(name) });
const last = () => asked.at(-1) ?? new URLSearchParams();

test("runs are rows with the values of the chosen columns, and link to their tasks", async () => {
  renderAt("/runs?column=status&column=param.lr&column=metric.val_loss.best");
  const alpha = await row("alpha");
  expect(within(alpha).getByRole("link", { name: "alpha" }).getAttribute("href")).toBe("/training/task-alpha");
  expect(within(alpha).getByText("训练中")).toBeTruthy();
  expect(within(alpha).getByText("0.001")).toBeTruthy();
  expect(within(await row("gamma")).getByText("auto")).toBeTruthy();
  expect(last().getAll("column")).toEqual(["status", "param.lr", "metric.val_loss.best"]);
  expect(screen.getByText("共 3 次运行")).toBeTruthy();
  expect(screen.getAllByRole("columnheader").map(({ textContent }) => textContent)).toEqual([
    "运行",
    "状态",
    "lr",
    "val_loss (最佳)",
  ]);
});

test("Enter searches, the address holds the query, and clearing it shows all again", async () => {
  const shown = renderAt("/runs");
  const field = await screen.findByRole("combobox", { name: "查询" });
  await userEvent.type(field, "lr>1e-4 unet{Enter}");
  await waitFor(() => expect(last().get("query")).toBe("lr>1e-4 unet"));
  expect(shown.address()).toBe("/runs?view=all&query=lr%3E1e-4+unet");
  await userEvent.click(screen.getByRole("button", { name: "清除查询" }));
  await waitFor(() => expect(shown.address()).toBe("/runs?view=all"));
});

test("what is typed is completed by the keyboard", async () => {
  platformHandlers.use(
    http.get(apiUrl("/runs/complete"), ({ request }) => {
      const params = new URL(request.url).searchParams;
      const [query, at] = [params.get("query") ?? "", Number(params.get("position"))] as const;
      if (query.endsWith(":"))
        return respondWith({ from: at, to: at, items: [{ text: "failed", kind: "value", detail: "" }] });
      const items = ["status:", "step"].map((text) => ({ text, kind: "field", detail: "" }));
      return respondWith({ from: 0, to: at, items: query === "st" ? items : [] });
    }),
  );
  renderAt("/runs");
  const field = await screen.findByRole<HTMLInputElement>("combobox", { name: "查询" });
  await userEvent.type(field, "st");
  await screen.findByRole("option", { name: /^status:/ });
  await userEvent.keyboard("{ArrowDown}{ArrowDown}");
  const step = screen.getByRole("option", { name: /^step\s*步数/ });
  expect(step.getAttribute("aria-selected")).toBe("true");
  expect(field.getAttribute("aria-activedescendant")).toBe(step.id);
  await userEvent.keyboard("{ArrowUp}{Enter}");
  expect(field.value).toBe("status:");
  await screen.findByRole("option", { name: "failed" });
  await userEvent.keyboard("{Tab}");
  expect(field.value).toBe("status:failed ");
  expect(document.activeElement).toBe(field);
  await userEvent.keyboard("{Enter}");
  await waitFor(() => expect(last().get("query")).toBe("status:failed"));
});

test("Escape closes the suggestions, and the query stays", async () => {
  const items = [{ text: "status:", kind: "field", detail: "" }];
  platformHandlers.use(http.get(apiUrl("/runs/complete"), () => respondWith({ from: 0, to: 1, items })));
  renderAt("/runs");
  const field = await screen.findByRole<HTMLInputElement>("combobox", { name: "查询" });
  await userEvent.type(field, "s");
  await screen.findByRole("option");
  await userEvent.keyboard("{Escape}");
  expect(screen.queryByRole("option")).toBeNull();
  expect(field.value).toBe("s");
});

test("a problem with the query is marked at its place, and the runs of the query before stay", async () => {
  renderAt("/runs");
  await row("alpha");
  const problem = {
    field: "query",
    error: "QUERY_VALUE",
    message: "缺少值。",
    hint: "例如 lr>1。",
    place: { from: 10, to: 11 },
  };
  platformHandlers.use(http.get(apiUrl("/runs"), () => respondWithError(400, "QUERY_VALUE", "缺少值。", [problem])));
  const field = screen.getByRole("combobox", { name: "查询" });
  await userEvent.type(field, "name:🙂 lr>> x{Enter}");
  const alert = await screen.findByRole("alert");
  expect(alert.textContent).toBe("缺少值。 例如 lr>1。>");
  expect(field.getAttribute("aria-invalid")).toBe("true");
  expect(field.getAttribute("aria-describedby")).toBe(alert.id);
  expect(document.querySelector("mark")?.textContent).toBe(">");
  expect(screen.getByText("仍显示上一次查询的运行。")).toBeTruthy();
  expect(await row("alpha")).toBeTruthy();
});

test("a press on a heading sorts by the best first, another turns it round, and a third leaves it", async () => {
  const shown = renderAt("/runs?column=metric.val_loss.best");
  await row("alpha");
  const heading = () => screen.getByRole("columnheader", { name: "val_loss (最佳)" });
  for (const [sort, order] of [
    ["ascending", "metric.val_loss.best"],
    ["descending", "-metric.val_loss.best"],
    ["none", null],
  ] as const) {
    await userEvent.click(within(heading()).getByRole("button"));
    await waitFor(() => expect(last().get("sort")).toBe(order));
    expect(heading().getAttribute("aria-sort")).toBe(sort);
  }
  expect(shown.address()).toBe("/runs?view=all&column=metric.val_loss.best");
});

test("columns are chosen, ordered by the keyboard, and of a curve the value is chosen", async () => {
  const shown = renderAt("/runs?column=status&column=loss");
  await row("alpha");
  await userEvent.click(screen.getByRole("button", { name: "列" }));
  const dialog = await screen.findByRole("dialog", { name: "列" });
  await userEvent.type(within(dialog).getByRole("searchbox", { name: "查找列" }), "val");
  await userEvent.click(within(dialog).getByRole("checkbox", { name: "val_loss" }));
  await userEvent.selectOptions(within(dialog).getByRole("combobox", { name: "val_loss 的取值" }), "min");
  await userEvent.click(within(dialog).getByRole("button", { name: "下移 状态" }));
  expect(document.activeElement?.getAttribute("aria-label")).toBe("下移 状态");
  await userEvent.keyboard("{Alt>}{ArrowDown}{/Alt}");
  expect(shown.address()).toBe("/runs?view=all&column=loss&column=metric.val_loss.min&column=status");
  expect(document.activeElement?.getAttribute("aria-label")).toBe("上移 状态");
  await userEvent.click(within(dialog).getByRole("button", { name: "移除列 损失" }));
  await waitFor(() => expect(last().getAll("column")).toEqual(["metric.val_loss.min", "status"]));
});

test("a column is moved by dragging its heading", async () => {
  const shown = renderAt("/runs?column=status&column=loss&column=param.lr");
  await row("alpha");
  const heading = (name: string) => screen.getByRole("columnheader", { name });
  const dataTransfer = { setData: () => undefined, effectAllowed: "" };
  fireEvent.dragStart(heading("lr"), { dataTransfer });
  fireEvent.dragOver(heading("状态"), { dataTransfer });
  fireEvent.drop(heading("状态"), { dataTransfer });
  expect(shown.address()).toBe("/runs?view=all&column=param.lr&column=status&column=loss");
});

test("a baseline stays on top, and the others say how they differ and whether that is better", async () => {
  const shown = renderAt("/runs?column=metric.val_loss.best&column=loss");
  await row("beta");
  await userEvent.click(screen.getByRole("button", { name: "alpha 的操作" }));
  await userEvent.click(await screen.findByRole("menuitem", { name: "设为基准" }));
  expect(shown.address()).toContain("baseline=task-alpha");
  await screen.findByText("基准");
  const beta = await row("beta");
  expect(within(beta).getByRole("img", { name: "优于基准：" })).toBeTruthy();
  expect(within(beta).getByText(/−1 \(−33%\)/)).toBeTruthy();
  const lossDifference = within(beta).getByText(/\+2 \(\+100%\)/);
  expect(within(lossDifference).queryByRole("img")).toBeNull(); // which is better is not known of it
  expect(within(await row("gamma")).queryByText(/−/)).toBeNull();
  const names = screen.getAllByRole("rowheader").map(({ textContent }) => textContent);
  expect(names).toEqual(["alpha基准", "beta", "gamma"]);
});

test("pinned runs come first, also when the query does not find them", async () => {
  found = RUNS.slice(0, 2);
  const shown = renderAt("/runs?column=loss&pin=task-gamma&query=x");
  await row("gamma");
  expect(screen.getAllByRole("rowheader").map(({ textContent }) => textContent)).toEqual(["gamma", "alpha", "beta"]);
  await userEvent.click(screen.getByRole("button", { name: "gamma 的操作" }));
  await userEvent.click(await screen.findByRole("menuitem", { name: "取消置顶" }));
  await waitFor(() => expect(screen.queryByRole("row", { name: /gamma/ })).toBeNull());
  expect(shown.address()).not.toContain("pin=");
});

test("groups have their aggregates, open to their runs, and one can be shown alone", async () => {
  const figures = { mean: 2.5, min: 2, max: 3, std: 0.5, count: 2 };
  const groups = {
    items: [
      { key: { "param.lr": 0.001 }, count: 120, values: { loss: figures } },
      { key: { "param.lr": null }, count: 1, values: {} },
    ],
    groups: 2,
    tasks: 121,
    complete: true,
  };
  platformHandlers.use(http.get(apiUrl("/runs/groups"), () => respondWith(groups)));
  const shown = renderAt("/runs?column=loss&query=unet");
  await userEvent.click(await screen.findByText("分组"));
  await userEvent.selectOptions(await screen.findByLabelText("分组依据"), "lr");
  const head = await screen.findByRole("button", { name: /lr\s*0\.001/ });
  expect(head.getAttribute("aria-expanded")).toBe("false");
  expect(screen.getByText("2 – 3")).toBeTruthy();
  expect(screen.getByText("2 组")).toBeTruthy();
  await userEvent.click(head);
  await row("alpha");
  expect(last().get("query")).toBe("unet param.lr:0.001");
  await userEvent.click(screen.getByRole("button", { name: "已显示 120 次中的 3 次，查看整组" }));
  await waitFor(() => expect(shown.address()).toBe("/runs?view=all&query=unet+param.lr%3A0.001&column=loss"));
});

test("tags are added and removed in the row", async () => {
  const saved: unknown[] = [];
  platformHandlers.use(
    http.patch(apiUrl("/runs/:id"), async ({ request, params }) => {
      saved.push([params.id, await request.json()]);
      return respondWith({ taskId: params.id, tags: [], note: "", archivedAt: null });
    }),
  );
  renderAt("/runs?column=tag");
  await userEvent.click(await screen.findByRole("button", { name: "编辑 alpha 的标签" }));
  await userEvent.type(await screen.findByRole("combobox", { name: "新标签" }), "paper{Enter}");
  await waitFor(() => expect(saved).toEqual([["task-alpha", { tags: ["base", "paper"] }]]));
  await userEvent.keyboard("{Escape}");
  await userEvent.click(within(await row("alpha")).getByRole("button", { name: "移除标签 base" }));
  await waitFor(() => expect(saved.at(-1)).toEqual(["task-alpha", { tags: [] }]));
});

test("a viewer changes nothing: tags and notes are read, and nothing is archived", async () => {
  platformHandlers.use(http.get(apiUrl("/auth/me"), () => respondWith(buildUser("viewer"))));
  renderAt("/runs?column=tag&column=note");
  await row("alpha");
  expect(screen.queryByRole("button", { name: "移除标签 base" })).toBeNull();
  expect(screen.queryByRole("button", { name: /添加备注/ })).toBeNull();
  await userEvent.click(screen.getByRole("checkbox", { name: "选择 alpha" }));
  expect(screen.getByRole("button", { name: "归档" })).toHaveProperty("disabled", true);
  expect(screen.getByRole("button", { name: "添加标签" })).toHaveProperty("disabled", true);
});

test("a note is shown as Markdown and saved as it was written", async () => {
  const note = `# 结论\n- 学习率 **太高**\n${"x".repeat(250)}`;
  found = [buildRun("alpha", {}, { note: note.slice(0, 200) })];
  const saved: unknown[] = [];
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-alpha"), () => respondWith({ ...found[0]?.task, note })),
    http.patch(apiUrl("/runs/:id"), async ({ request }) => {
      saved.push(await request.json());
      return respondWith({ taskId: "task-alpha", tags: [], note: "", archivedAt: null });
    }),
  );
  renderAt("/runs?column=note");
  await userEvent.click(await screen.findByRole("button", { name: /alpha 的备注\s*结论/ }));
  const dialog = await screen.findByRole("dialog", { name: "alpha 的备注" });
  const text = await within(dialog).findByRole<HTMLTextAreaElement>("textbox", { name: "备注" });
  expect(text.value).toBe(note);
  await userEvent.type(text, " 重试");
  await userEvent.click(within(dialog).getByRole("tab", { name: "预览" }));
  expect(within(dialog).getByRole("heading", { name: "结论" })).toBeTruthy();
  expect(within(dialog).getByText("太高").tagName).toBe("STRONG");
  await userEvent.click(within(dialog).getByRole("button", { name: "保存" }));
  await waitFor(() => expect(saved).toEqual([{ note: `${note} 重试` }]));
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
});

test("selected runs are compared, and changed together with a result for each", async () => {
  const sent: RunBulkRequest[] = [];
  platformHandlers.use(
    http.post(apiUrl("/runs/bulk"), async ({ request }) => {
      sent.push((await request.json()) as RunBulkRequest);
      const refusal = { code: "TASK_RUNNING", message: "任务还在运行", hint: "" };
      return respondWith({
        items: [
          { taskId: "task-alpha", done: false, refusal },
          { taskId: "task-gamma", done: true, refusal: null },
        ],
        done: 1,
      });
    }),
  );
  renderAt("/runs");
  await row("alpha");
  await userEvent.click(screen.getByRole("checkbox", { name: "选择 alpha" }));
  await userEvent.click(screen.getByRole("checkbox", { name: "选择 gamma" }));
  const bar = screen.getByRole("region", { name: "所选运行" });
  expect(within(bar).getByRole("link", { name: "对比" }).getAttribute("href")).toBe(
    "/compare?tasks=task-alpha%2Ctask-gamma",
  );
  await userEvent.click(within(bar).getByRole("button", { name: "归档" }));
  const result = await screen.findByRole("region", { name: "批量归档的结果" });
  expect(sent).toEqual([{ action: "archive", taskIds: ["task-alpha", "task-gamma"] }]);
  expect(within(result).getByRole("status").textContent).toBe("已归档 1 次运行，1 个未能归档");
  expect(
    within(result)
      .getAllByRole("listitem")
      .map(({ textContent }) => textContent),
  ).toEqual(["alpha任务还在运行", "gamma已归档"]);
  expect(screen.queryByRole("region", { name: "所选运行" })).toBeNull();
});

test("Shift ticks all runs between two, and tags are added to all of them", async () => {
  const sent: RunBulkRequest[] = [];
  platformHandlers.use(
    http.post(apiUrl("/runs/bulk"), async ({ request }) => {
      const body = (await request.json()) as RunBulkRequest;
      sent.push(body);
      return respondWith({ items: body.taskIds.map((taskId) => ({ taskId, done: true, refusal: null })), done: 3 });
    }),
  );
  renderAt("/runs");
  await row("alpha");
  const user = userEvent.setup();
  await user.click(screen.getByRole("checkbox", { name: "选择 alpha" }));
  await user.keyboard("{Shift>}");
  await user.click(screen.getByRole("checkbox", { name: "选择 gamma" }));
  await user.keyboard("{/Shift}");
  screen.getByText("已选 3 个");
  await user.click(screen.getByRole("button", { name: "添加标签" }));
  const dialog = await screen.findByRole("dialog", { name: "为 3 次运行添加标签" });
  await user.type(within(dialog).getByRole("combobox", { name: "标签" }), "a, b，a");
  await user.click(within(dialog).getByRole("button", { name: "添加" }));
  await waitFor(() =>
    expect(sent).toEqual([{ action: "addTags", tags: ["a", "b"], taskIds: RUNS.map(({ task }) => task.taskId) }]),
  );
  await screen.findByText("已为 3 次运行添加标签");
});

test("a view is saved for a project, opened by its chip, and changes are saved into it", async () => {
  const stored: (RunViewRequest & { id: string; mayChange: boolean })[] = [];
  platformHandlers.use(
    http.get(apiUrl("/run-views"), () => respondWithList(...stored)),
    http.post(apiUrl("/run-views"), async ({ request }) => {
      const view = { ...((await request.json()) as RunViewRequest), id: "view-1", mayChange: true };
      stored.push(view);
      return respondWith(view, 201);
    }),
    http.patch(apiUrl("/run-views/view-1"), async ({ request }) => {
      Object.assign(stored[0] ?? {}, await request.json());
      return respondWith(stored[0]);
    }),
    http.delete(apiUrl("/run-views/view-1"), () => {
      stored.length = 0;
      return respondWith(null);
    }),
  );
  const shown = renderAt("/runs?query=tag%3Abase&column=loss&sort=-loss&baseline=task-alpha");
  await row("alpha");
  await userEvent.click(screen.getByRole("button", { name: "保存视图" }));
  const dialog = await screen.findByRole("dialog", { name: "保存视图" });
  await userEvent.type(within(dialog).getByRole("textbox", { name: "视图名称" }), "my view");
  await userEvent.selectOptions(within(dialog).getByRole("combobox", { name: "可见范围" }), "项目 默认");
  await userEvent.click(within(dialog).getByRole("button", { name: "保存" }));
  const chip = await screen.findByRole("link", { name: /my view/ });
  expect(stored).toMatchObject([
    {
      name: "my view",
      projectId: "project-1",
      query: "tag:base",
      columns: ["loss"],
      sort: "-loss",
      groupBy: [],
      pinned: [],
      baseline: "task-alpha",
    },
  ]);
  await waitFor(() => expect(chip.getAttribute("aria-current")).toBe("true"));
  await userEvent.click(screen.getByRole("columnheader", { name: "损失" }).querySelector("button") ?? chip);
  await screen.findByText("保存后有改动");
  const choose = async (item: string) => {
    await userEvent.click(screen.getByRole("button", { name: "视图 my view 的操作" }));
    await userEvent.click(await screen.findByRole("menuitem", { name: item }));
  };
  await choose("保存改动");
  await waitFor(() => expect(stored[0]?.sort).toBe("loss"));
  await choose("在此浏览器中默认打开");
  expect(localStorage.getItem("fermi.runs.view")).toBe("view-1");
  await choose("删除");
  await waitFor(() => expect(screen.queryByRole("link", { name: /my view/ })).toBeNull());
  expect(localStorage.getItem("fermi.runs.view")).toBeNull();
  expect(shown.address()).toContain("view=all");
});

test("the default view opens where the address says nothing, and a link to all runs shows all", async () => {
  localStorage.setItem("fermi.runs.view", "view-1");
  const view = {
    id: "view-1",
    name: "mine",
    projectId: null,
    mayChange: true,
    query: "owner:ada",
    columns: ["loss"],
    sort: "",
    groupBy: [],
    pinned: [],
    baseline: null,
  };
  platformHandlers.use(http.get(apiUrl("/run-views"), () => respondWithList(view)));
  const shown = renderAt("/runs");
  await row("alpha");
  expect(shown.address()).toBe("/runs?view=view-1&query=owner%3Aada&column=loss");
  await userEvent.click(screen.getByRole("link", { name: "全部运行" }));
  await waitFor(() => expect(shown.address()).toBe("/runs?view=all"));
});

test("a search that did not reach the end says so, and goes on behind the cursor", async () => {
  const cursors: (string | null)[] = [];
  platformHandlers.use(
    http.get(apiUrl("/runs"), ({ request }) => {
      const cursor = new URL(request.url).searchParams.get("cursor");
      cursors.push(cursor);
      if (cursor === null)
        return respondWith(
          page([], {
            nextCursor: "next",
            total: null,
            totalIsExact: null,
            searched: { complete: false, tasks: 20000 },
          }),
        );
      return respondWith(page(RUNS, { total: null, totalIsExact: null }));
    }),
  );
  renderAt("/runs?query=unet");
  await screen.findByText("已加载 0 次运行 目前只查找了 20,000 次运行。");
  await userEvent.click(screen.getByRole("button", { name: "继续查找" }));
  await row("alpha");
  expect(cursors).toEqual([null, "next"]);
});

test("a name in the query that no run has is named", async () => {
  platformHandlers.use(http.get(apiUrl("/runs"), () => respondWith(page([], { unknownNames: ["statsu"] }))));
  renderAt("/runs?query=statsu%3Afailed");
  await screen.findByText(/你的运行都没有这些参数或指标：statsu/);
});

test("no runs, and no run that matches: both say what to do", async () => {
  found = [];
  const shown = renderAt("/runs?query=unet");
  await screen.findByText("没有符合条件的运行");
  const [, clear] = screen.getAllByRole("button", { name: "清除查询" });
  await userEvent.click(clear ?? document.body);
  await screen.findByText("还没有运行记录");
  expect(shown.address()).toBe("/runs?view=all");
  expect(screen.getAllByRole("link", { name: "创建训练任务" })).toHaveLength(2);
});

test("the export has what the table shows", async () => {
  renderAt("/runs?query=lr%3E1&column=loss&sort=-loss&archived=true");
  await row("alpha");
  await userEvent.click(screen.getByRole("button", { name: "导出" }));
  const csv = await screen.findByRole("menuitem", { name: "CSV" });
  expect(csv.getAttribute("href")).toBe(
    "/api/v1/runs/export?format=csv&query=lr%3E1&column=loss&sort=-loss&archived=all",
  );
});

test("of many runs, only the visible ones are rendered", async () => {
  found = Array.from({ length: 100 }, (_, at) => buildRun(`run-${at}`, { loss: at }));
  renderAt("/runs?column=loss");
  await row("run-0");
  const rows = screen.getAllByRole("rowheader").length;
  expect(rows).toBeGreaterThan(10);
  expect(rows).toBeLessThan(60);
  expect(screen.getByRole("table").getAttribute("aria-rowcount")).toBe("101");
});

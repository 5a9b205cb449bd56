import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { SavedTemplate } from "@/api/types";
import { task } from "@/test/fixtures";
import { apiUrl, buildUser, platformHandlers, respondWith, respondWithError, respondWithList } from "@/test/platform";
import { renderAt } from "@/test/render";
import { template } from "./fixtures";

const problem = (field: string, message: string) => ({ field, error: "X", message, hint: "" });

/** Serves one template, and the problems that a preview finds. */
function serve(found: SavedTemplate = template, problems: unknown[] = []) {
  const previews: unknown[] = [];
  platformHandlers.use(
    http.get(apiUrl("/saved-templates"), () => respondWithList(found)),
    http.get(apiUrl("/saved-templates/saved-1"), () => respondWith(found)),
    http.get(apiUrl("/schedules"), () => respondWithList()),
    http.post(apiUrl("/saved-templates/saved-1/preview"), async ({ request }) => {
      previews.push(await request.json());
      return respondWith({ request: { taskName: "night-7" }, problems, preview: null });
    }),
  );
  return previews;
}

test("the list says whose a template is, what varies in it, and when it was last used", async () => {
  serve();
  renderAt("/templates");
  const table = await screen.findByRole("table");
  expect(within(table).getByRole("link", { name: "nightly" }).getAttribute("href")).toBe("/templates/saved-1");
  expect(within(table).getByText("默认")).toBeTruthy();
  expect(within(table).getByText("lr")).toBeTruthy();
  expect(within(table).getByText("bo")).toBeTruthy();
  expect(within(table).getByRole("link", { name: /天前/ }).getAttribute("href")).toBe("/training/task-1");
});

test("a platform without templates says what they are for", async () => {
  platformHandlers.use(http.get(apiUrl("/saved-templates"), () => respondWithList()));
  renderAt("/templates");
  expect(await screen.findByText("还没有模板")).toBeTruthy();
  expect(screen.getByText(/打开一个值得重复运行的任务/)).toBeTruthy();
});

test("the form creates a task of the values that differ from the defaults, and opens its page", async () => {
  const previews = serve();
  const sent: unknown[] = [];
  platformHandlers.use(
    http.post(apiUrl("/saved-templates/saved-1/tasks"), async ({ request }) => {
      sent.push(await request.json(), request.headers.has("Idempotency-Key"));
      return respondWith({ taskId: "task-1", taskName: "night-7", status: "queued" }, 201);
    }),
  );
  const page = renderAt("/templates/saved-1");
  const note = await screen.findByLabelText("名称 *");
  await userEvent.type(note, "7");
  const rate = screen.getByLabelText("学习率");
  await userEvent.clear(rate);
  await userEvent.type(rate, "0.5");
  await userEvent.click(await screen.findByRole("checkbox", { name: /name-of-env-2/ }));
  const values = { lr: 0.5, note: "7", where: ["env-1", "env-2"] };
  await waitFor(() => expect(previews.at(-1)).toEqual({ values }));
  await userEvent.click(screen.getByRole("button", { name: "创建任务" }));
  await waitFor(() => expect(page.address()).toBe("/training/task-1"));
  expect(sent).toEqual([{ values }, true]);
});

test("a wrong value has its problem at its field, and others stand apart", async () => {
  serve(template, [problem("values.lr", "学习率须在 0 与 1 之间"), problem("modelId", "没有这个模型")]);
  renderAt("/templates/saved-1");
  const rate = await screen.findByLabelText("学习率");
  await screen.findByText("学习率须在 0 与 1 之间");
  expect(rate.getAttribute("aria-invalid")).toBe("true");
  expect(screen.getByText("没有这个模型")).toBeTruthy();
});

test("a missing value is pointed out once a task was to be created", async () => {
  serve(template, [problem("values.note", "名称没有值")]);
  platformHandlers.use(
    http.post(apiUrl("/saved-templates/saved-1/tasks"), () =>
      respondWithError(400, "INVALID_REQUEST", "有误", [problem("values.note", "名称没有值")]),
    ),
  );
  renderAt("/templates/saved-1");
  await screen.findByText("1 个问题");
  expect(screen.queryByText("名称没有值")).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "创建任务" }));
  expect(await screen.findByText("名称没有值")).toBeTruthy();
});

test("a viewer reads a template and is offered no action", async () => {
  serve({ ...template, mayChange: false });
  platformHandlers.use(http.get(apiUrl("/auth/me"), () => respondWith(buildUser("viewer"))));
  renderAt("/templates/saved-1");
  expect(await screen.findByText(/查看者可以阅读模板/)).toBeTruthy();
  expect(screen.queryByRole("button", { name: /创建任务|删除/ })).toBeNull();
  expect(screen.queryByRole("link", { name: /修改|定时运行/ })).toBeNull();
});

test("a template that a schedule uses stays, and the refusal names the schedule", async () => {
  serve();
  platformHandlers.use(
    http.delete(apiUrl("/saved-templates/saved-1"), () =>
      respondWithError(409, "TEMPLATE_IN_USE", "定时 nights 用此模板创建任务。"),
    ),
  );
  renderAt("/templates/saved-1");
  await userEvent.click(await screen.findByRole("button", { name: "删除" }));
  await userEvent.click(within(await screen.findByRole("alertdialog")).getByRole("button", { name: "删除" }));
  expect(await screen.findByText("定时 nights 用此模板创建任务。")).toBeTruthy();
});

test("a template that does not exist says so", async () => {
  platformHandlers.use(
    http.get(apiUrl("/saved-templates/saved-x"), () => respondWithError(404, "NOT_FOUND", "不存在")),
  );
  renderAt("/templates/saved-x");
  expect((await screen.findAllByText("模板不存在")).length).toBeGreaterThan(0);
});

test("a task is saved as a template by choosing what varies", async () => {
  serve();
  const request = {
    taskName: "first",
    projectId: "project-1",
    environmentIds: ["env-1"],
    hyperparameters: { lr: 0.1 },
  };
  const sent: unknown[] = [];
  platformHandlers.use(
    http.post(apiUrl("/training-tasks/task-1/clone"), () => respondWith({ request })),
    http.post(apiUrl("/saved-templates"), async ({ request }) => {
      sent.push(await request.json());
      return sent.length === 1
        ? respondWithError(400, "INVALID_REQUEST", "有误", [problem("parameters.0.low", "下限大于上限")])
        : respondWith(template, 201);
    }),
  );
  const page = renderAt("/templates/create?task=task-1");
  const name = await screen.findByLabelText("名称");
  expect(name).toHaveProperty("value", task.taskName);
  await userEvent.click(screen.getByRole("button", { name: "把 hyperparameters.lr 设为参数" }));
  const group = screen.getByRole("group", { name: "lr" });
  await userEvent.type(within(group).getByLabelText("最小值"), "5");
  await userEvent.click(screen.getByRole("button", { name: "保存模板" }));
  expect(await screen.findByText("下限大于上限")).toBeTruthy();
  await userEvent.clear(within(group).getByLabelText("最小值"));
  await userEvent.click(screen.getByRole("button", { name: "保存模板" }));
  await waitFor(() => expect(page.address()).toBe("/templates/saved-1"));
  expect(sent[1]).toEqual({
    name: task.taskName,
    description: "",
    projectId: "project-1",
    request: { ...request, hyperparameters: { lr: "{{lr}}" } },
    parameters: [{ name: "lr", type: "number", label: "", help: "", default: 0.1 }],
  });
});

test("a stored parameter becomes a fixed value again, and only who may change the template is offered that", async () => {
  serve();
  const sent: { request?: unknown; parameters?: unknown[] }[] = [];
  platformHandlers.use(
    http.patch(apiUrl("/saved-templates/saved-1"), async ({ request }) => {
      sent.push((await request.json()) as (typeof sent)[number]);
      return respondWith(template);
    }),
  );
  const page = renderAt("/templates/saved-1/edit");
  await userEvent.click(await screen.findByRole("button", { name: "把 lr 改为固定值" }));
  await userEvent.click(screen.getByRole("button", { name: "保存模板" }));
  await waitFor(() => expect(page.address()).toBe("/templates/saved-1"));
  expect(sent[0]?.parameters).toHaveLength(2);
  expect(sent[0]?.request).toMatchObject({ hyperparameters: { learningRate: 0.001 } });
});

test("text that is no JSON is refused before anything is sent", async () => {
  serve();
  renderAt("/templates/saved-1/edit");
  await userEvent.click(await screen.findByText("以文本修改请求"));
  const text = await screen.findByLabelText("请求（JSON）");
  await userEvent.clear(text);
  await userEvent.type(text, "nonsense");
  await userEvent.click(screen.getByRole("button", { name: "应用" }));
  expect(await screen.findByText(/这不是有效的 JSON/)).toBeTruthy();
});

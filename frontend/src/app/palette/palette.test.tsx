import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import { task } from "@/test/fixtures";
import { apiUrl, respondWithList, respondWith, platformHandlers, respondWithError } from "@/test/platform";
import { renderAt } from "@/test/render";

const KEYS = "{Control>}k{/Control}";
const finder = () => screen.findByRole("combobox", { name: "搜索或输入命令" });
const active = (box: HTMLElement) =>
  document.getElementById(box.getAttribute("aria-activedescendant") ?? "")?.textContent;

async function openPalette() {
  await userEvent.keyboard(KEYS);
  return finder();
}

test("the palette goes to a page by the keyboard alone", async () => {
  const page = renderAt("/training");
  await screen.findByRole("link", { name: "first-task" });
  const box = await openPalette();
  expect(document.activeElement).toBe(box);
  await userEvent.type(box, "queue");
  await waitFor(() => expect(active(box)).toContain("排队"));
  await userEvent.keyboard("{Enter}");
  await waitFor(() => expect(page.address()).toBe("/queue"));
  expect(screen.queryByRole("dialog")).toBeNull();
});

test("whatever has the name is found, once typing pauses, and a part that fails says so with its request", async () => {
  const query: string[] = [];
  platformHandlers.use(
    http.get(apiUrl("/training-tasks"), ({ request }) => {
      const search = new URL(request.url).searchParams.get("search");
      if (search) query.push(search);
      return respondWithList(task);
    }),
    http.get(apiUrl("/models"), () => respondWithError(400, "INVALID_REQUEST", "请求有误")),
  );
  const page = renderAt("/zones");
  await screen.findByRole("heading", { name: "可用区" });
  const box = await openPalette();
  await userEvent.type(box, "first");
  const tasks = await screen.findByRole("group", { name: "训练任务" });
  expect((await screen.findByRole("alert")).textContent).toContain("请求号 req-1");
  expect(query).toEqual(["first"]);
  expect(within(await screen.findByRole("group", { name: "Worker" })).getAllByRole("option")).toHaveLength(2);
  await userEvent.click(within(tasks).getByRole("option"));
  await waitFor(() => expect(page.address()).toBe("/training/task-1"));
});

test("a task's page offers to stop it, and asks first", async () => {
  let stopped = 0;
  platformHandlers.use(
    http.post(apiUrl("/training-tasks/:id/stop"), () => {
      stopped++;
      return respondWith({});
    }),
  );
  renderAt("/training/task-1");
  await screen.findByRole("heading", { name: /first-task/ });
  await userEvent.type(await openPalette(), "stop{Enter}");
  await screen.findByRole("option", { name: "取消", selected: true });
  expect(stopped).toBe(0);
  await userEvent.keyboard("{ArrowDown}{Enter}");
  await waitFor(() => expect(stopped).toBe(1));
});

test("shortcuts lead through the list and are listed, and none works once they are turned off", async () => {
  platformHandlers.use(
    http.get(apiUrl("/training-tasks"), () => respondWithList(task, { ...task, taskId: "task-2", taskName: "second" })),
  );
  const page = renderAt("/training");
  const first = await screen.findByRole("link", { name: "first-task" });
  await userEvent.keyboard("j");
  expect(document.activeElement).toBe(first);
  await userEvent.keyboard("jx");
  expect(screen.getByRole("checkbox", { name: "选择 second" })).toHaveProperty("checked", true);
  await userEvent.keyboard("/jk");
  expect(screen.getByRole("searchbox")).toHaveProperty("value", "jk");
  (document.activeElement as HTMLElement).blur();
  await userEvent.keyboard("?");
  await screen.findByRole("dialog", { name: "键盘快捷键" });
  await userEvent.keyboard("{Escape}gs");
  await waitFor(() => expect(page.address()).toBe("/settings"));
  await userEvent.click(await screen.findByRole("checkbox", { name: /键盘快捷键/ }));
  await userEvent.keyboard("gt");
  expect(page.address()).toBe("/settings");
  await userEvent.click(screen.getByRole("checkbox", { name: /键盘快捷键/ }));
});

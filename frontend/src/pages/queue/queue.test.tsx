import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { QueuedTask } from "@/api/types";
import { waiter } from "@/test/fixtures";
import { apiUrl, respondWithList, respondWith, platformHandlers, respondWithError } from "@/test/platform";
import { renderAt } from "@/test/render";
import { moveToDropTarget, applyMove, moveOneStep } from "./order";

const names = () =>
  screen
    .getAllByRole("row")
    .slice(1)
    .map((row) => within(row).queryByRole("link", { name: /waits-/ })?.textContent ?? "?");

/** A queue that a maintainer sees, and that does what it is told. */
function movable(...items: QueuedTask[]) {
  const sent: unknown[] = [];
  let now = items.map((each) => ({ ...each, mayMove: each.taskId !== null }));
  platformHandlers.use(
    http.get(apiUrl("/queue"), () => respondWithList(...now)),
    http.post(apiUrl("/training-tasks/:id/move"), async ({ request, params }) => {
      const { before } = (await request.json()) as { before: string | null };
      sent.push([params.id, before]);
      now = applyMove(now, String(params.id), before);
      return respondWith({});
    }),
  );
  return sent;
}

const others = waiter(2, { taskId: null, taskName: "", owner: "", projectId: null });

test("who waits for what, why, when, and after whom; others are not named", async () => {
  platformHandlers.use(
    http.get(apiUrl("/queue"), () =>
      respondWithList(
        waiter(1, {
          priority: "urgent",
          begins: "2026-11-21T06:30:00Z",
          early: "2026-11-21T06:10:00Z",
          late: "2026-11-21T07:00:00Z",
          after: [
            { taskId: "task-9", name: "runs-now", until: null },
            { taskId: null, name: "", until: null },
          ],
        }),
        others,
      ),
    ),
  );
  renderAt("/queue");
  const first = (await screen.findByRole("link", { name: "waits-1" })).closest("tr");
  if (!first) throw new Error("no row");
  expect(within(first).getByRole("link", { name: "waits-1" }).getAttribute("href")).toBe("/training/task-1");
  for (const text of ["默认", "紧急", "2 台，每台 4 块 A100", "还差 1 台"])
    expect(within(first).getAllByText(text, { exact: false }).length).toBeGreaterThan(0);
  expect(within(first).getAllByRole("link", { name: "runs-now" })[0]?.getAttribute("href")).toBe("/training/task-9");
  expect(within(first).getAllByText(/ – /)[0]).toBeTruthy();
  const second = screen.getAllByRole("row")[2];
  expect(second?.textContent).toContain("其他人的任务");
  expect(second?.textContent).toContain("无法预估");
  expect(screen.queryByRole("button", { name: /上移/ })).toBeNull();
});

test("the address filters by project and cluster", async () => {
  const query: string[] = [];
  platformHandlers.use(
    http.get(apiUrl("/queue"), ({ request }) => {
      query.push(new URL(request.url).search);
      return respondWithList(waiter(1));
    }),
  );
  const page = renderAt("/queue?project=project-1");
  await screen.findByRole("link", { name: "waits-1" });
  await userEvent.selectOptions(
    await screen.findByLabelText("集群"),
    await screen.findByRole("option", { name: "本机" }),
  );
  await waitFor(() => expect(page.address()).toBe("/queue?project=project-1&cluster=cluster-1"));
  await waitFor(() => expect(query.at(-1)).toContain("cluster=cluster-1"));
});

test("a maintainer moves a task with the keyboard, and the focus goes along", async () => {
  const sent = movable(waiter(1), others, waiter(3), waiter(4, { priority: "high" }));
  renderAt("/queue");
  (await screen.findByRole("button", { name: "上移 waits-3" })).focus();
  await userEvent.keyboard("{Enter}");
  await waitFor(() => expect(names()).toEqual(["waits-3", "?", "waits-1", "waits-4"]));
  expect(sent).toEqual([["task-3", "task-1"]]);
  expect(document.activeElement?.getAttribute("aria-label")).toBe("下移 waits-3");
  expect(screen.queryByRole("button", { name: "上移 waits-4" })).toBeNull();
});

test("a maintainer drags a task behind another of its project and class", async () => {
  const sent = movable(waiter(1), waiter(2), waiter(3));
  renderAt("/queue");
  const row = async (name: string) => {
    const found = (await screen.findByRole("link", { name })).closest("tr");
    if (!found) throw new Error(name);
    return found;
  };
  const data = { dataTransfer: { setData: () => undefined } };
  fireEvent.dragStart(await row("waits-1"), data);
  fireEvent.dragOver(await row("waits-3"), data);
  fireEvent.drop(await row("waits-3"), data);
  await waitFor(() => expect(sent).toEqual([["task-1", null]]));
  await waitFor(() => expect(names()).toEqual(["waits-2", "waits-3", "waits-1"]));
});

test("a refused move is taken back, with the platform's words", async () => {
  movable(waiter(1), waiter(2));
  platformHandlers.use(
    http.post(apiUrl("/training-tasks/:id/move"), () => respondWithError(409, "CONFLICT", "这个任务刚刚开始了")),
  );
  renderAt("/queue");
  await userEvent.click(await screen.findByRole("button", { name: "下移 waits-1" }));
  await screen.findByText("这个任务刚刚开始了");
  await waitFor(() => expect(names()).toEqual(["waits-1", "waits-2"]));
});

test("an empty queue says so, and one that cannot be loaded can be asked for again", async () => {
  platformHandlers.use(http.get(apiUrl("/queue"), () => respondWithError(500, "UNKNOWN", "出错了"), { once: true }));
  renderAt("/queue");
  await screen.findByText("出错了");
  await userEvent.click(screen.getByRole("button", { name: "重试" }));
  await screen.findByText("没有任务在排队");
});

test("a move gives its peers' places anew and touches nobody else", () => {
  const queue = [waiter(1), waiter(2, { priority: "high" }), waiter(3), waiter(4)];
  const order = (items: QueuedTask[]) => items.map(({ taskId, number }) => `${taskId} ${number}`);
  expect(order(applyMove(queue, "task-4", "task-1"))).toEqual(["task-4 1", "task-2 2", "task-1 3", "task-3 4"]);
  expect(order(applyMove(queue, "task-1", null))).toEqual(["task-3 1", "task-2 2", "task-4 3", "task-1 4"]);
  expect(applyMove(queue, "task-1", "task-2")).toBe(queue);
});

test("downwards the next one goes before; below the page's end only the last page knows", () => {
  const [first, second, third] = [waiter(1), waiter(2), waiter(3)];
  const queue = [first, second, third];
  expect(moveOneStep(queue, first, "up")).toBeUndefined();
  expect(moveOneStep(queue, first, "down")).toEqual({ id: "task-2", before: "task-1" });
  expect(moveToDropTarget(queue, first, second, true)).toEqual({ id: "task-1", before: "task-3" });
  expect(moveToDropTarget(queue, first, third, true)).toEqual({ id: "task-1", before: null });
  expect(moveToDropTarget(queue, first, third, false)).toEqual({ id: "task-1", before: "task-3" });
});

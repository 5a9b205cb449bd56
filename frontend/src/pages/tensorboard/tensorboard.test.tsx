import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { TensorBoard } from "@/api/tensorboards";
import { apiUrl, platformHandlers, respondWith, respondWithError } from "@/test/platform";
import { renderAt } from "@/test/render";

const buildBoard = (over: Partial<TensorBoard> = {}): TensorBoard => ({
  id: "tensorboard-1",
  environmentId: "env-9",
  projectId: "project-one",
  taskIds: ["task-1", "task-2"],
  state: "starting",
  reason: { code: "INSTALLING_PACKAGES", message: "正在安装软件包", hint: "" },
  url: null,
  endsAt: null,
  createdBy: "ann",
  createdAt: "2026-11-28T10:00:00Z",
  ...over,
});

const original = location;
const replace = vi.fn();
const asked: unknown[] = [];
let boards: TensorBoard[] = [];

beforeEach(() => {
  replace.mockClear();
  asked.length = 0;
  vi.stubGlobal("location", { origin: original.origin, href: original.href, replace });
  platformHandlers.use(
    http.post(apiUrl("/tensorboards"), async ({ request }) => {
      asked.push(await request.json());
      return respondWith(buildBoard(), 201);
    }),
    http.get(apiUrl("/tensorboards/tensorboard-1"), () => respondWith(boards.length > 1 ? boards.shift() : boards[0])),
  );
});
afterEach(() => vi.stubGlobal("location", original));

test("it says what TensorBoard waits for, and goes there when it is ready", async () => {
  boards = [
    buildBoard(),
    buildBoard({ state: "ready", reason: null, url: "/environments/env-9/open?door=tensorboard" }),
  ];
  renderAt("/tensorboard?tasks=task-1,task-2");
  expect(await screen.findByText("正在安装软件包")).toBeTruthy();
  await waitFor(() => expect(replace).toHaveBeenCalledWith("/environments/env-9/open?door=tensorboard"), {
    timeout: 10_000,
  });
  expect(asked).toEqual([{ taskIds: ["task-1", "task-2"] }]);
}, 20_000);

test("one that failed says why, links to its environment, and can be opened again", async () => {
  boards = [buildBoard({ state: "failed", reason: { code: "X", message: "无法安装软件包", hint: "请使用镜像" } })];
  renderAt("/tensorboard?tasks=task-1");
  expect((await screen.findByRole("alert")).textContent).toContain("无法安装软件包请使用镜像");
  expect(screen.getByRole("link", { name: "运行它的开发环境" }).getAttribute("href")).toBe("/environments/env-9");
  await userEvent.click(screen.getByRole("button", { name: "重新打开" }));
  await waitFor(() => expect(asked).toHaveLength(2));
  expect(replace).not.toHaveBeenCalled();
});

test("a refusal is shown as it came", async () => {
  platformHandlers.use(
    http.post(apiUrl("/tensorboards"), () =>
      respondWithError(409, "TENSORBOARD_TOO_MANY", "你已有 5 个 TensorBoard。"),
    ),
  );
  renderAt("/tensorboard?tasks=task-1");
  expect(await screen.findByText(/你已有 5 个 TensorBoard/)).toBeTruthy();
});

test("without tasks it says how to choose some", async () => {
  renderAt("/tensorboard");
  expect(await screen.findByText("没有要显示的任务")).toBeTruthy();
  expect(asked).toEqual([]);
});

import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { MemoryRouter } from "react-router";
import { beforeAll, expect, test } from "vitest";
import type { TrackerRun } from "@/api/tracker-runs";
import { createQueryClient } from "@/app/query-client";
import { ToastArea } from "@/app/toaster";
import { withPageTexts } from "@/i18n";
import { task } from "@/test/fixtures";
import { apiUrl, platformHandlers, respondWith, respondWithError } from "@/test/platform";
import TrackerRuns from "./tracker-runs";

beforeAll(() => withPageTexts(Promise.resolve()));

function renderCard() {
  render(
    <QueryClientProvider client={createQueryClient()}>
      <MemoryRouter>
        <TrackerRuns task={task} />
      </MemoryRouter>
      <ToastArea />
    </QueryClientProvider>,
  );
}

const run = (runId: string, state: TrackerRun["state"], more: Partial<TrackerRun> = {}): TrackerRun => ({
  source: "wandb",
  runId,
  entity: "ann",
  project: "gpt",
  name: "",
  url: "",
  state,
  folder: "",
  attempt: 1,
  rank: 0,
  at: "2026-11-28T00:00:00Z",
  syncTaskId: null,
  ...more,
});

function begun(canSync: boolean, ...items: TrackerRun[]) {
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/:id/tracker-runs"), () => respondWith({ items, own: items[0] ?? null, canSync })),
  );
}

test("a run leads to its page at W&B, and an address that is no web page is not one", async () => {
  const page = "https://wandb.ai/ann/gpt/runs/task-1";
  begun(
    false,
    run("task-1", "online", { name: "calm-sea", url: page }),
    run("other", "online", { url: "javascript:alert(1)" }),
  );
  renderCard();
  expect((await screen.findByRole("link", { name: "calm-sea" })).getAttribute("href")).toBe(page);
  expect(screen.getByText("other").closest("a")).toBeNull();
  expect(screen.queryByRole("button", { name: "同步离线运行" })).toBeNull();
});

test("offline runs are synced by a task, and without a key the reason is shown", async () => {
  begun(true, run("a1b2c3d4", "offline"));
  const sent: unknown[] = [];
  platformHandlers.use(
    http.post(apiUrl("/training-tasks/:id/tracker-runs/sync"), async ({ request }) => {
      sent.push(await request.json());
      return sent.length === 1
        ? respondWithError(409, "WANDB_KEY_MISSING", "项目没有密钥 WANDB_API_KEY。")
        : respondWith({ taskId: "task-2", status: "queued" }, 201);
    }),
  );
  renderCard();
  const button = await screen.findByRole("button", { name: "同步离线运行" });
  await userEvent.click(button);
  await screen.findByText("项目没有密钥 WANDB_API_KEY。");
  await userEvent.click(button);
  await screen.findByText("已创建任务，正在发送离线运行。");
  expect(sent).toEqual([{}, {}]);
});

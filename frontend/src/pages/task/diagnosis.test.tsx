import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { beforeEach, expect, test, vi } from "vitest";
import type { DiagnosisFinding, SuggestedAction } from "@/api/types";
import { FakeEventSource } from "@/test/event-source";
import { codeSource, task } from "@/test/fixtures";
import { apiUrl, respondWith, platformHandlers } from "@/test/platform";
import { renderAt } from "@/test/render";

vi.mock("./chart", () => ({
  Chart: ({ label }: { label: string }) => <div role="img" aria-label={label} />,
}));

const place = { rank: 3, nodeRank: 1, node: "env-b" };

function remedy(code: SuggestedAction["code"], label: string, over: Partial<SuggestedAction> = {}): SuggestedAction {
  return { code, label, hint: `${label}会怎样`, params: {}, allowed: true, ...over };
}

const hang: DiagnosisFinding = {
  code: "HANG",
  level: "fail",
  message: "rank 3 卡住了",
  hint: "看看堆栈",
  since: "2026-11-21T05:00:00Z",
  until: null,
  attempt: 2,
  where: [place],
  evidence: [{ message: "13 个 rank 在等待：", lines: ["wait (torch/x.py:1)", "main (train.py:3)"], where: place }],
  actions: [
    remedy("WITHOUT_NODE", "去掉 env-b 后继续", { params: { nodeRank: 1, node: "env-b", environmentId: "env-2" } }),
    remedy("USE_SPARE", "用备用环境替换", { allowed: false }),
    remedy("RAISE_LIMIT", "调高 hangSeconds", { params: { field: "hangSeconds" } }),
    remedy("CHANGE_FIELD", "仍然重启", { params: { field: "onCrashLoop", to: "restart" } }),
    remedy("EDIT_SCRIPT", "修改脚本：train.py:3"),
    remedy("SEE_LOG", "查看 rank 3 的日志", { params: { rank: 3 } }),
  ],
};

const before: DiagnosisFinding = {
  ...hang,
  code: "RANK_FAILED",
  level: "info",
  message: "rank 1 退出码 1",
  until: "2026-11-21T04:00:00Z",
  attempt: 1,
  where: [],
  evidence: [],
  actions: [],
};

function diagnose(...findings: DiagnosisFinding[]) {
  const answer = { taskId: "task-1", status: "running", healthy: false, summary: hang.message, findings };
  platformHandlers.use(http.get(apiUrl("/training-tasks/task-1/diagnosis"), () => respondWith(answer)));
}

const panel = () => screen.findByRole("region", { name: "当前状况与原因" });

beforeEach(() => {
  Element.prototype.scrollIntoView = vi.fn();
});

test("a healthy task says so in one quiet line", async () => {
  renderAt("/training/task-1");
  const shown = await panel();
  expect(shown.textContent).toBe("训练正常：第 3 步。");
  expect(within(shown).queryByRole("button")).toBeNull();
});

test("what is wrong is shown with its place, its evidence folded and what may be done", async () => {
  diagnose(hang, before);
  renderAt("/training/task-1");
  const shown = within(await panel());
  expect(shown.getByRole("status").textContent).toBe("rank 3 卡住了");
  expect(shown.getByText("rank 3 · env-b")).toBeTruthy();
  expect(shown.getByText("13 个 rank 在等待：").closest("details")?.open).toBe(false);
  expect(shown.getByText(/main \(train.py:3\)/)).toBeTruthy();
  expect(shown.getByText("修改脚本：train.py:3").closest("button")).toBeNull();
  expect(shown.queryByRole("button", { name: "用备用环境替换" })).toBeNull();
  const clone = shown.getByRole("link", { name: "调高 hangSeconds" });
  expect(clone.getAttribute("href")).toBe("/training/create?from=task-1&field=hangSeconds");
  const change = shown.getByRole("link", { name: "仍然重启" });
  expect(change.getAttribute("href")).toBe("/training/create?from=task-1&field=onCrashLoop&to=restart");
  expect(shown.getByText("之前的情况：1").closest("details")?.textContent).toContain("rank 1 退出码 1");
});

test("going on without a node asks first, and says which one to the platform", async () => {
  const query = vi.fn();
  diagnose(hang);
  platformHandlers.use(
    http.post(apiUrl("/training-tasks/task-1/restart"), async ({ request }) => {
      query(await request.json());
      return respondWith({ taskId: "task-1" });
    }),
  );
  renderAt("/training/task-1");
  await userEvent.click(await screen.findByRole("button", { name: "去掉 env-b 后继续" }));
  const dialog = within(await screen.findByRole("alertdialog"));
  expect(dialog.getByText("去掉 env-b 后继续会怎样")).toBeTruthy();
  expect(query).not.toHaveBeenCalled();
  await userEvent.click(dialog.getByRole("button", { name: "去掉 env-b 后继续" }));
  await waitFor(() =>
    expect(query).toHaveBeenCalledExactlyOnceWith({ leaveOut: ["env-2"], useSpares: false, code: "auto" }),
  );
});

test("once the script is edited, one button retries, and asks which code", async () => {
  const ended = { ...task, status: "failed", endedAt: "2026-11-21T05:10:00Z", allowedActions: ["retry"] as const };
  const source = codeSource({ snapshotId: "8c1c8c1c8c1c", kind: "environment", environment: "gpu-a", changed: true });
  diagnose({ ...hang, actions: [...hang.actions, remedy("RESTART_FROM_CHECKPOINT", "从检查点重启")] });
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-1"), () => respondWith(ended)),
    http.get(apiUrl("/training-tasks/task-1/code/source"), () => respondWith(source)),
  );
  renderAt("/training/task-1");
  const shown = within(await panel());
  expect(shown.queryByRole("button", { name: "从检查点重启" })).toBeNull();
  await userEvent.click(shown.getByRole("button", { name: "用修改后的代码重试" }));
  const dialog = within(await screen.findByRole("alertdialog"));
  expect((await dialog.findByRole<HTMLInputElement>("radio", { name: /当前内容/ })).checked).toBe(true);
});

test("news of the task has the panel ask again", async () => {
  renderAt("/training/task-1");
  await panel();
  diagnose(hang);
  const event = {
    id: 1,
    attempt: 1,
    at: "2026-11-21T05:00:00Z",
    kind: "finding",
    code: "HANG",
    params: {},
    message: "卡住",
    hint: "",
  };
  await waitFor(() => expect(FakeEventSource.opened).toHaveLength(1));
  FakeEventSource.opened[0]?.send("event", event);
  await screen.findByText("rank 3 卡住了");
});

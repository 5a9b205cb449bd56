import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { AgentEvent, AgentToken, Proposal } from "@/api/agents";
import { apiUrl, platformHandlers, respondWith, respondWithError, respondWithList } from "@/test/platform";
import { renderAt } from "@/test/render";

const agent = (over: Partial<AgentToken> = {}): AgentToken => ({
  id: "0123456789abcdef",
  name: "helper",
  agent: "coder",
  user: "ada",
  projects: ["project-1"],
  scopes: ["tasks:write"],
  createdAt: "2026-11-01T00:00:00Z",
  expiresAt: null,
  lastUsedAt: null,
  purse: { gpuHours: 4, money: null, preemptibleOnly: true, maxRunning: 3, environments: ["env-1"] },
  spent: { gpuHours: 1, money: 0 },
  reserved: { gpuHours: 2, money: 0 },
  left: { gpuHours: 1, money: null },
  currency: "CNY",
  unfinishedTasks: 1,
  openProposals: 1,
  ...over,
});

const proposal = (over: Partial<Proposal> = {}): Proposal => ({
  id: "proposal-1",
  tokenId: "0123456789abcdef",
  tokenName: "helper",
  agent: "coder",
  user: "ada",
  project: "project-1",
  operation: "createTask",
  method: "POST",
  path: "/api/v1/training-tasks",
  body: { taskName: "long", env: { MODE: "••••••" } },
  beyond: [{ code: "PURSE_GPU_HOURS", message: "任务最多使用 8 GPU 小时。", hint: "" }],
  plan: {
    name: "long", nodes: 2, gpus: 4, environments: ["a", "b"], maxRunSeconds: 7200, gpuHours: 8, cost: null,
    currency: "CNY",
  }, // prettier-ignore
  difference: { taskId: "task-1", changes: [{ field: "hyperparameters.totalSteps", before: "20", after: "2000" }] },
  state: "open",
  createdAt: "2026-11-20T00:00:00Z",
  expiresAt: "2026-11-27T00:00:00Z",
  decidedAt: null,
  decidedBy: null,
  note: "",
  status: null,
  result: null,
  mayDecide: true,
  ...over,
});

test("a purse shows what is spent, reserved and left", async () => {
  platformHandlers.use(http.get(apiUrl("/agent-tokens"), () => respondWithList(agent())));
  renderAt("/agents");
  const meter = await screen.findByRole("meter", { name: "GPU 小时" });
  expect(meter.getAttribute("aria-valuetext")).toMatch(/已用 1 .*预占 2 .*剩余 1 /);
  expect(meter.getAttribute("aria-valuenow")).toBe("25");
  const shown = screen.getByRole("main").textContent;
  for (const text of ["1 个，上限 3 个", "仅限可抢占任务", "env-1", "提议（1）"]) expect(shown).toContain(text);
});

test("a created token is shown once, with what an MCP client needs", async () => {
  const sent: unknown[] = [];
  platformHandlers.use(
    http.get(apiUrl("/agent-tokens"), () => respondWithList()),
    http.post(apiUrl("/agent-tokens"), async ({ request }) => {
      sent.push(await request.json());
      return respondWith({ ...agent(), token: "fermi_secret" }, 201);
    }),
  );
  renderAt("/agents");
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: "创建智能体令牌" }));
  const dialog = await screen.findByRole("dialog", { name: "创建智能体令牌" });
  await user.type(within(dialog).getByRole("textbox", { name: "用途" }), "helper");
  await user.type(within(dialog).getByRole("textbox", { name: "GPU 小时" }), "0.5");
  await user.click(within(dialog).getByRole("radio", { name: "仅限以下环境" }));
  await user.click(await within(dialog).findByRole("checkbox", { name: /env-1/ }));
  await user.click(within(dialog).getByRole("button", { name: "创建智能体令牌" }));
  expect(await within(dialog).findByText("fermi_secret")).toBeTruthy();
  expect(dialog.textContent).toContain("/mcp");
  expect(sent).toEqual([
    {
      name: "helper", agent: "", projectIds: ["project-1"], gpuHours: 0.5, money: null, maxRunning: null,
      preemptibleOnly: false, environments: ["env-1"], expiresInDays: 30,
    }, // prettier-ignore
  ]);
});

test("a proposal is approved as one thing, with a note", async () => {
  let current = proposal();
  const sent: unknown[] = [];
  platformHandlers.use(
    http.get(apiUrl("/proposals"), () => respondWithList(current)),
    http.get(apiUrl("/agent-tokens"), () => respondWithList(agent())),
    http.post(apiUrl("/proposals/proposal-1/approve"), async ({ request }) => {
      sent.push(await request.json());
      const result = { code: 201, message: "", data: { taskId: "task-7" } };
      current = proposal({ state: "approved", status: 201, decidedBy: "ada", note: "once", result });
      return respondWith(current);
    }),
  );
  renderAt("/agents/proposals");
  const user = userEvent.setup();
  await screen.findByRole("heading", { name: "训练“long”。" });
  const shown = screen.getByRole("main").textContent;
  for (const text of ["coder", "任务最多使用 8 GPU 小时", "hyperparameters.totalSteps", "最多 8 GPU 小时", "a, b"])
    expect(shown).toContain(text);
  await user.click(screen.getByRole("button", { name: "批准" }));
  const dialog = await screen.findByRole("dialog", { name: "批准该提议？" });
  await user.type(within(dialog).getByRole("textbox", { name: "备注" }), "once");
  await user.click(within(dialog).getByRole("button", { name: "批准" }));
  expect((await screen.findByRole("link", { name: "查看任务" })).getAttribute("href")).toBe("/training/task-7");
  expect(sent).toEqual([{ note: "once", again: false }]);
  expect(screen.queryByRole("button", { name: "拒绝" })).toBeNull();
});

test("a request that failed after approval says why", async () => {
  const errors = [{ field: "", error: "FORBIDDEN", message: "需要成员角色。", hint: "请联系维护者。" }];
  const failed = proposal({ state: "approved", status: 403, decidedBy: "ada", result: { code: 403, errors } });
  platformHandlers.use(http.get(apiUrl("/proposals/proposal-1"), () => respondWith(failed)));
  renderAt("/agents/proposals/proposal-1");
  expect(await screen.findByText("需要成员角色。 请联系维护者。")).toBeTruthy();
});

test("a cut-off approval is only sent again on purpose, and who may not decide sees no button", async () => {
  const cut = proposal({ state: "approved", decidedBy: "ada", operation: "deleteTask", plan: null, difference: null });
  platformHandlers.use(
    http.get(apiUrl("/proposals/proposal-1"), () => respondWith(cut)),
    http.get(apiUrl("/proposals/proposal-2"), () => respondWith(proposal({ id: "proposal-2", mayDecide: false }))),
  );
  renderAt("/agents/proposals/proposal-1");
  expect(await screen.findByRole("button", { name: "再次发送" })).toBeTruthy();
  renderAt("/agents/proposals/proposal-2");
  await screen.findByRole("heading", { name: "训练“long”。" });
  expect(screen.queryByRole("button", { name: "批准" })).toBeNull();
});

test("the navigation counts open proposals", async () => {
  platformHandlers.use(
    http.get(apiUrl("/proposals"), () => respondWithList(proposal(), proposal({ id: "proposal-2" }))),
    http.get(apiUrl("/agent-tokens"), () => respondWithList()),
  );
  renderAt("/agents");
  expect((await screen.findAllByText("2 条待处理的提议")).length).toBeGreaterThan(0);
});

test("what an agent did can be undone, or says why not", async () => {
  const event = (over: Partial<AgentEvent>): AgentEvent => ({
    id: 1, at: "2026-11-20T00:00:00Z", action: "task.create", target: "task-1", project: "project-1", data: {},
    undo: "stop", undoRefusal: null, ...over,
  }); // prettier-ignore
  const refusal = { code: "UNDO_UNKNOWN", message: "run.change 无法撤销。", hint: "" };
  const undone: string[] = [];
  platformHandlers.use(
    http.get(apiUrl("/agent-tokens/:id"), () => respondWith(agent())),
    http.get(apiUrl("/agent-tokens/:id/events"), () =>
      respondWithList(event({}), event({ id: 2, action: "run.change", undo: null, undoRefusal: refusal })),
    ),
    http.post(apiUrl("/audit-events/:id/undo"), ({ params }) => {
      undone.push(String(params.id));
      return respondWith({ taskId: "task-1", status: "running" });
    }),
  );
  renderAt("/agents/0123456789abcdef");
  const user = userEvent.setup();
  expect(await screen.findByText("run.change 无法撤销。")).toBeTruthy();
  await user.click(screen.getByRole("button", { name: "停止任务" }));
  await user.click(within(await screen.findByRole("alertdialog")).getByRole("button", { name: "停止任务" }));
  await waitFor(() => expect(undone).toEqual(["1"]));
});

test("a purse is changed, and a refusal is shown at its field", async () => {
  platformHandlers.use(
    http.get(apiUrl("/agent-tokens"), () => respondWithList(agent())),
    http.patch(apiUrl("/agent-tokens/:id"), () =>
      respondWithError(400, "INVALID_REQUEST", "", [
        { field: "gpuHours", error: "FIELD_INVALID", message: "不是数字。", hint: "" },
      ]),
    ),
  );
  renderAt("/agents");
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: "修改" }));
  const dialog = await screen.findByRole("dialog", { name: "“helper”的额度" });
  const hours = within(dialog).getByRole("textbox", { name: "GPU 小时" });
  await user.clear(hours);
  await user.type(hours, "many");
  await user.click(within(dialog).getByRole("button", { name: "保存" }));
  expect(await within(dialog).findByText("不是数字。")).toBeTruthy();
});

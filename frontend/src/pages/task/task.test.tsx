import { act, screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test, vi } from "vitest";
import { FakeEventSource } from "@/test/event-source";
import { codeSource, drill, metric, task } from "@/test/fixtures";
import { apiUrl, respondWith, platformHandlers, respondWithError } from "@/test/platform";
import { renderAt } from "@/test/render";

vi.mock("./chart", () => ({
  Chart: ({ label }: { label: string }) => <div role="img" aria-label={label} />,
}));

const actions = () =>
  ["停止", "重试", "删除"]
    .filter((name) => screen.queryByRole("button", { name }))
    .concat(screen.queryByRole("link", { name: "克隆" }) ? ["克隆"] : []);

test("only what the server allows is offered", async () => {
  renderAt("/training/task-1");
  await screen.findByRole("heading", { name: /first-task/ });
  expect(actions()).toEqual(["停止", "克隆"]);
});

test("the address of a run that MLflow's client prints leads to its task", async () => {
  const page = renderAt("/#/experiments/default/runs/task-1");
  await screen.findByRole("heading", { name: /first-task/ });
  expect(page.address()).toBe("/training/task-1");
});

test("the reason of an end is on the page without waiting long for the diagnosis", async () => {
  const ended = {
    ...task,
    status: "failed",
    endedAt: "2026-11-21T05:10:00Z",
    reason: { code: "RANK_FAILED", message: "rank 1 退出码 1", hint: "查看它的日志" },
    allowedActions: ["retry", "clone", "delete"],
  };
  const slow = http.get(apiUrl("/training-tasks/task-1/diagnosis"), () => new Promise<never>(() => undefined));
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-1"), () => respondWith(ended)),
    slow,
  );
  renderAt("/training/task-1");
  await screen.findByText("rank 1 退出码 1");
  expect(screen.getByText(/查看它的日志/)).toBeTruthy();
  expect(actions()).toEqual(["重试", "删除", "克隆"]);
  expect(FakeEventSource.opened).toHaveLength(0);
});

const failed = { ...task, status: "failed", endedAt: "2026-11-21T05:10:00Z", allowedActions: ["retry"] };
const folder = { snapshotId: "8c1c8c1c8c1c8c1c", kind: "environment", environment: "gpu-a", path: "mine" };

test.each([
  ["a changed folder as it is now", { ...folder, changed: true }, undefined, "current"],
  ["the snapshot of a changed folder", { ...folder, changed: true }, "任务原来的快照 8c1c8c1c8c1c", "snapshot"],
  ["the snapshot of a folder that is as it was", { ...folder, changed: false }, undefined, "snapshot"],
  ["a folder of which nothing is known", { ...folder, changed: null }, "gpu-a:mine 的当前内容", "current"],
  ["what was sent", { ...folder, kind: "upload", changed: null }, undefined, "snapshot"],
])("a retry runs %s", async (_, source, chosen, code) => {
  const retried = vi.fn();
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-1"), () => respondWith(failed)),
    http.get(apiUrl("/training-tasks/task-1/code/source"), () => respondWith(codeSource(source))),
    http.post(apiUrl("/training-tasks/task-1/retry"), async ({ request }) => {
      retried(await request.json());
      return respondWith({ taskId: "task-1" }, 201);
    }),
  );
  renderAt("/training/task-1");
  await userEvent.click(await screen.findByRole("button", { name: "重试" }));
  const dialog = within(await screen.findByRole("alertdialog"));
  await waitFor(() => expect(dialog.getByRole("status").textContent).not.toContain("正在"));
  if (chosen) await userEvent.click(dialog.getByRole("radio", { name: chosen }));
  await userEvent.click(dialog.getByRole("button", { name: "重试" }));
  await waitFor(() => expect(retried).toHaveBeenCalledExactlyOnceWith({ code }));
});

test("a retry waits for no environment that does not answer", async () => {
  const retried = vi.fn();
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-1"), () => respondWith(failed)),
    http.get(apiUrl("/training-tasks/task-1/code/source"), () => new Promise(() => {})),
    http.post(apiUrl("/training-tasks/task-1/retry"), async ({ request }) => {
      retried(await request.json());
      return respondWith({ taskId: "task-1" }, 201);
    }),
  );
  renderAt("/training/task-1");
  await userEvent.click(await screen.findByRole("button", { name: "重试" }));
  const dialog = within(await screen.findByRole("alertdialog"));
  expect(dialog.getByRole("status").textContent).toContain("正在与快照比较");
  await userEvent.click(dialog.getByRole("button", { name: "重试" }));
  await waitFor(() => expect(retried).toHaveBeenCalledExactlyOnceWith({ code: "auto" }));
});

test("stopping asks first, then tells the server once", async () => {
  const stopped = vi.fn(() => respondWith({}));
  platformHandlers.use(http.post(apiUrl("/training-tasks/task-1/stop"), stopped));
  renderAt("/training/task-1");
  await userEvent.click(await screen.findByRole("button", { name: "停止" }));
  const dialog = await screen.findByRole("alertdialog");
  expect(stopped).not.toHaveBeenCalled();
  await userEvent.click(within(dialog).getByRole("button", { name: "停止" }));
  await screen.findByText("正在停止");
  expect(stopped).toHaveBeenCalledTimes(1);
});

test.each([
  ["停止", ["stop"]],
  ["暂停", ["pause"]],
  ["重试", ["retry"]],
])("%s says before it is confirmed from where training goes on and what is lost", async (label, allowedActions) => {
  const message = "没有检查点：否则会丢失 2,101 步。";
  const resumePoint = { step: null, savedAt: null, attempt: null, path: "", stepsLost: 2101, message };
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-1"), () => respondWith({ ...task, allowedActions })),
    http.get(apiUrl("/training-tasks/task-1/diagnosis"), () =>
      respondWith({ taskId: "task-1", status: "running", healthy: true, summary: "", findings: [], resumePoint }),
    ),
  );
  renderAt("/training/task-1");
  await userEvent.click(await screen.findByRole("button", { name: label }));
  expect(await within(await screen.findByRole("alertdialog")).findByText(message)).toBeTruthy();
});

test("a drill is begun from the task's page, and shows whether training resumes and at what cost", async () => {
  const query = vi.fn();
  let newest: string | null = null;
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-1"), () => respondWith({ ...task, drillId: newest })),
    http.post(apiUrl("/drills"), async ({ request }) => {
      query(await request.json());
      newest = drill.id;
      return respondWith(drill);
    }),
    http.get(apiUrl("/drills/drill-1"), () => respondWith(drill)),
  );
  renderAt("/training/task-1");
  await userEvent.click(await screen.findByRole("button", { name: "演练重启" }));
  await screen.findByText("训练从第 90 步继续");
  expect(query).toHaveBeenCalledExactlyOnceWith({ taskId: "task-1" });
  for (const shown of ["rank 1（gn5）", "93", "90", "1.1 秒", "1.3 秒"]) expect(screen.getByText(shown)).toBeTruthy();
  expect(screen.getByText(/checkpoint_step_90\.pt/)).toBeTruthy();
  expect(screen.getByRole("button", { name: "再次演练" })).toBeTruthy();
});

test("an elastic task says on how many nodes it runs and who is away, and grows when it is asked to", async () => {
  const elastic = {
    minNodes: 2,
    maxNodes: 4,
    nodes: 3,
    sizes: [2, 3, 4],
    globalBatchSize: 64,
    accumulationSteps: 2,
    largest: 3,
    resizing: false,
    away: [{ environmentId: "env-4", name: "gn8", status: "held", taskId: "task-7" }],
  };
  const grown = vi.fn(() => respondWith({}));
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-1"), () => respondWith({ ...task, elastic })),
    http.post(apiUrl("/training-tasks/task-1/grow"), grown),
  );
  renderAt("/training/task-1");
  await screen.findByText("4 个中的 3 个");
  expect(screen.getByText(/被其他任务占用/).textContent).toContain("task-7");
  expect(screen.queryByRole("button", { name: "立即扩大" })).toBeNull();

  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-1"), () => respondWith({ ...task, elastic: { ...elastic, largest: 4 } })),
  );
  renderAt("/training/task-1");
  await userEvent.click(await screen.findByRole("button", { name: "立即扩大" }));
  await userEvent.click(
    within(await screen.findByRole("alertdialog")).getByRole("button", { name: "立即扩大", hidden: false }),
  );
  await waitFor(() => expect(grown).toHaveBeenCalledTimes(1));
});

test("what the stream brings appears: points, state, log lines", async () => {
  renderAt("/training/task-1");
  await screen.findByText("1 行");
  const [stream] = FakeEventSource.opened;
  expect(stream?.url).toBe("/api/v1/training-tasks/task-1/stream?logs=0");
  act(() => {
    stream?.send("metric", metric(1, 42, 1.25));
    stream?.send("log", { rank: 0, attempt: 1, lines: [{ offset: 18, text: "second line" }] });
    stream?.send("status", { status: "running", step: 42 });
  });
  await screen.findByRole("img", { name: "损失 1.25" });
  await screen.findByText("2 行");
  expect(screen.getByRole("progressbar").getAttribute("aria-valuenow")).toBe("42");
});

test("the time left is shown as an estimate, in whole minutes", async () => {
  const estimatedEndAt = new Date(Date.now() + 7_203_000).toISOString();
  platformHandlers.use(http.get(apiUrl("/training-tasks/task-1"), () => respondWith({ ...task, estimatedEndAt })));
  renderAt("/training/task-1");
  expect((await screen.findByText("预计剩余")).nextSibling?.textContent).toBe("2小时");
  expect(screen.getByText("2小时").title).toContain("估计");
});

test("choosing a rank reads its log, and the stream follows", async () => {
  renderAt("/training/task-1");
  await userEvent.click(await screen.findByRole("button", { name: /rank 1/ }));
  await waitFor(() => expect(FakeEventSource.opened.at(-1)?.url).toContain("logs=1"));
  expect(screen.getByLabelText<HTMLSelectElement>("进程").value).toBe("1");
  expect(FakeEventSource.opened[0]?.readyState).toBe(FakeEventSource.CLOSED);
});

test("a new language opens a new stream", async () => {
  renderAt("/training/task-1");
  await screen.findByText("1 行");
  await userEvent.click(screen.getByRole("button", { name: "Switch to English" }));
  await screen.findByText("1 line");
  expect(FakeEventSource.opened.map(({ readyState }) => readyState === FakeEventSource.CLOSED)).toEqual([true, false]);
});

test("what an optimizer step comes to is among the settings", async () => {
  renderAt("/training/task-1");
  await screen.findByText("64 = 8 × 2 × 4");
  expect(screen.getByText("0.006 (0.003, linear)")).toBeTruthy();
});

test("where the ranks of each environment run is said with the reason, and the interpreter as it was asked for", async () => {
  const runsIn = { way: "inside", code: "WAY_INSIDE_GPUS", message: "环境持有 2 个 GPU。" };
  const request = { distributedConfig: { python: "conda-torch" } };
  const nodes = task.nodes.map((node) => ({ ...node, runsIn }));
  platformHandlers.use(http.get(apiUrl("/training-tasks/task-1"), () => respondWith({ ...task, nodes, request })));
  renderAt("/training/task-1");
  const reasons = within(await screen.findByRole("group", { name: "各环境的运行位置及原因" }));
  expect(reasons.getByText("name-of-env-1")).toBeTruthy();
  expect(reasons.getByText("环境内")).toBeTruthy();
  expect(reasons.getByText(runsIn.message)).toBeTruthy();
  expect(screen.getByText("conda-torch")).toBeTruthy();
});

test("emulated GPUs are marked as such", async () => {
  renderAt("/training/task-1");
  await screen.findByText("模拟");
});

test("a task that is not there is said so", async () => {
  platformHandlers.use(http.get(apiUrl("/training-tasks/task-9"), () => respondWithError(404, "NOT_FOUND", "没有")));
  renderAt("/training/task-9");
  await screen.findByRole("heading", { name: "没有这个任务" });
});

test("the log opens on the rank that failed first; ranks say how they ended, and another can be read", async () => {
  const endings = ["ended", "failed"] as const;
  const asked: (string | null)[] = [];
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-1"), () =>
      respondWith({
        ...task,
        status: "failed",
        endedAt: task.startedAt,
        ranks: task.ranks.map((rank, index) => ({ ...rank, state: "exited", exitCode: 1, ending: endings[index] })),
        attempts: task.attempts.map((attempt) => ({ ...attempt, failedRank: 1 })),
      }),
    ),
    http.get(apiUrl("/training-tasks/:id/logs"), ({ request }) => {
      const rank = new URL(request.url).searchParams.get("rank");
      asked.push(rank);
      return respondWith({
        rank,
        attempt: 1,
        lines: [{ offset: 0, text: `log of rank ${rank ?? ""}` }],
        cursor: "1",
        end: true,
      });
    }),
  );
  renderAt("/training/task-1");
  await screen.findByText("rank 1 最先失败，原因通常在它的日志末尾。");
  expect(screen.getByLabelText<HTMLSelectElement>("进程").value).toBe("1");
  expect(asked).not.toContain("0");
  const first = screen.getByRole("button", { name: "rank 1, 最先失败" });
  const other = screen.getByRole("button", { name: "rank 0, 由平台结束" });
  expect(first.className).toContain("bg-bad");
  expect(other.className).not.toContain("bad");
  await userEvent.click(other);
  await screen.findByText("log of rank 0", { selector: ".whitespace-pre span" });
  expect(screen.queryByText("rank 1 最先失败，原因通常在它的日志末尾。")).toBeNull();
});

test("the pulse of each rank is shown while the task runs; the one that waits longest can come first", async () => {
  const pulse = (rank: number, over: object) => ({
    rank,
    at: "2026-11-21T05:00:20Z",
    phase: "running",
    step: 417,
    steppedAt: "2026-11-21T05:00:19Z",
    sinceStep: 0.4,
    stepSeconds: 0.25,
    waitingShare: 0.125,
    printedAt: null,
    gpuBytes: 2 ** 30,
    rssBytes: 2 ** 29,
    cpu: 1.5,
    ...over,
  });
  const nothing = { step: null, steppedAt: null, sinceStep: null, stepSeconds: null, waitingShare: null };
  const ranks = [pulse(0, {}), pulse(1, { sinceStep: 83 }), pulse(2, { ...nothing, phase: "compiling" })];
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-1/pulses"), () => respondWith({ taskId: "task-1", attempt: 1, ranks })),
  );
  renderAt("/training/task-1");
  const table = within(await screen.findByRole("group", { name: "各 rank 的进度" }));
  const rows = () =>
    table
      .getAllByRole("row")
      .slice(1)
      .map((row) => [...row.querySelectorAll("td")].map((cell) => cell.textContent));
  const [first, second, third] = [
    ["0", "417", "0.4秒", "13%"],
    ["1", "417", "1分23秒", "13%"],
    ["2", "编译中", "–", "–"],
  ];
  expect(rows()).toEqual([first, second, third]);
  const inspector = screen.getByRole("region", { name: "所选的 rank" });
  expect(inspector.textContent).toMatch(/rank 0 · 运行 · 训练中 · 第 417 步.*显存1 GiB内存512 MiB.*每步时间0.25秒/);
  await userEvent.click(table.getByRole("button", { name: "距上一步" }));
  expect(rows()).toEqual([third, second, first]);
});

test("a task that has ended is asked for no pulse", async () => {
  const asked = vi.fn(() => respondWith({ taskId: "task-1", attempt: 1, ranks: [] }));
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-1"), () =>
      respondWith({ ...task, status: "succeeded", endedAt: task.startedAt }),
    ),
    http.get(apiUrl("/training-tasks/task-1/pulses"), asked),
  );
  renderAt("/training/task-1");
  await screen.findByText("1 行");
  expect(asked).not.toHaveBeenCalled();
});

test("pointing at a rank shows the last line of its log", async () => {
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/:id/logs"), ({ request }) => {
      const rank = new URL(request.url).searchParams.get("rank");
      const lines = [{ offset: 0, text: `\u001b[32mhello\u001b[0m from rank ${rank ?? ""}` }];
      return respondWith({ rank, attempt: 1, lines, cursor: "1", end: true });
    }),
  );
  renderAt("/training/task-1");
  await userEvent.hover(await screen.findByRole("button", { name: /rank 1/ }));
  const aside = within(screen.getByRole("complementary"));
  await aside.findByText("hello from rank 1");
});

test("a loss that is no number any more is the headline, and marked in the chart", async () => {
  const points = [
    metric(1, 1, 4),
    metric(2, 2, 0, { values: { loss: null } }),
    metric(3, 3, 0, { values: { loss: null } }),
  ];
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/:id/metrics"), () => respondWith({ items: points, next: null })),
  );
  renderAt("/training/task-1");
  await screen.findByRole("img", { name: "损失 自第 2 步起为 NaN" });
  const headline = screen.getByText("损失", { selector: "dt" }).nextElementSibling;
  expect(headline?.textContent).toBe("自第 2 步起为 NaN");
});

test("other metrics can be added, smoothed and drawn on a logarithmic axis", async () => {
  const points = [metric(1, 1, 4, { values: { loss: 4, lr: 0.1 } }), metric(2, 2, 2, { values: { loss: 2, lr: 0.2 } })];
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/:id/metrics"), () => respondWith({ items: points, next: null })),
  );
  renderAt("/training/task-1");
  await screen.findByRole("img", { name: "损失 2" });
  expect(screen.queryByRole("img", { name: "lr 0.2" })).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "lr" }));
  await screen.findByRole("img", { name: "lr 0.2" });
  await userEvent.click(screen.getByRole("checkbox", { name: "对数坐标" }));
  await userEvent.click(screen.getByRole("button", { name: "损失" }));
  expect(screen.queryByRole("img", { name: "损失 2" })).toBeNull();
});

test("each chart names where its curve is from, and sources that differ are curves of their own", async () => {
  const points = [
    metric(1, 1, 4, { values: { "train/loss": 4 }, source: "wandb" }),
    metric(2, 1, 4, { values: { "train/loss": 3 }, source: "text" }),
    metric(3, 1, 4, {
      values: Object.fromEntries(Array.from({ length: 12 }, (_, at) => [`extra/${at}`, at])),
      source: "tensorboard",
    }),
  ];
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/:id/metrics"), () => respondWith({ items: points, next: null })),
  );
  renderAt("/training/task-1");
  await screen.findByText("来自 W&B, 日志");
  await userEvent.type(screen.getByRole("searchbox", { name: "查找指标" }), "RA/11");
  const names = within(screen.getByRole("group", { name: "选择指标" })).getAllByRole("button");
  expect(names.map(({ textContent }) => textContent)).toEqual(["损失", "extra/11"]);
  await userEvent.click(screen.getByRole("button", { name: "extra/11" }));
  await screen.findByText("来自 TensorBoard");
});

test("lines of the log that became curves can be switched off, and their fields named", async () => {
  let pattern = {
    key: "k1",
    line: "iter {iter}: loss {loss}, time {time}ms",
    example: "iter 10: loss 4.2, time 12ms",
    enabled: true,
    fields: [
      { name: "loss", shownAs: "loss", unit: "" },
      { name: "time", shownAs: "time", unit: "ms" },
    ],
  };
  const sent: unknown[] = [];
  let reads = 0;
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/:id/metrics"), () => {
      reads++;
      return respondWith({ items: [metric(1, 10, 4.2, { source: "text" })], next: null });
    }),
    http.get(apiUrl("/training-tasks/:id/log-patterns"), () => respondWith({ items: [pattern] })),
    http.patch(apiUrl("/training-tasks/:id/log-patterns/k1"), async ({ request }) => {
      const body = (await request.json()) as { enabled?: boolean; fields?: Record<string, string> };
      sent.push(body);
      const fields = pattern.fields.map((each) => ({ ...each, shownAs: body.fields?.[each.name] ?? each.shownAs }));
      pattern = { ...pattern, fields, enabled: body.enabled ?? pattern.enabled };
      return respondWith(pattern);
    }),
  );
  renderAt("/training/task-1");
  await userEvent.click(await screen.findByText("日志中发现的 1 种行"));
  expect(screen.getAllByText(pattern.line)).toHaveLength(2); // with the curve, and in the list
  const before = reads;
  const name = screen.getByRole("textbox", { name: "time 的曲线名称" });
  await userEvent.clear(name);
  await userEvent.type(name, "{Enter}");
  await waitFor(() => expect(sent).toEqual([{ fields: { time: "" } }]));
  await waitFor(() => expect(reads).toBeGreaterThan(before));
  await userEvent.click(screen.getByRole("switch"));
  await waitFor(() => expect(sent[1]).toEqual({ enabled: false }));
  await waitFor(() => expect(screen.queryByRole("textbox", { name: "loss 的曲线名称" })).toBeNull());
});

test("the request can be taken away as a command", async () => {
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-1"), () => respondWith({ ...task, request: { taskName: "first-task" } })),
  );
  renderAt("/training/task-1");
  await userEvent.click(await screen.findByRole("tab", { name: "命令与 YAML" }));
  expect((await screen.findByLabelText("fermi.sh")).textContent).toContain("fermi submit");
  await userEvent.click(screen.getByRole("button", { name: "task.yaml" }));
  expect(screen.getByLabelText("task.yaml").textContent).toContain("taskName: first-task");
});

test("how far off a task was from what was expected is said", async () => {
  const expected = {
    rows: [],
    stepSeconds: { low: 1, high: 2 },
    tokensPerSecond: { low: 1000, high: 2000 },
    preflightId: null,
    reasons: [],
  };
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/:id/scaling"), () => respondWith({ expected, tokensPerSecond: 500, offBy: -0.5 })),
  );
  renderAt("/training/task-1");
  await screen.findByText(/比预期低 50%/);
});

test("a task shows its tags and its note, and members change both", async () => {
  const changes: unknown[] = [];
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-1"), () =>
      respondWith({ ...task, tags: ["baseline"], note: "**best** so far" }),
    ),
    http.get(apiUrl("/runs/complete"), () => respondWith({ from: 0, to: 0, items: [] })),
    http.patch(apiUrl("/runs/task-1"), async ({ request }) => {
      changes.push(await request.json());
      return respondWith({});
    }),
  );
  renderAt("/training/task-1");
  expect((await screen.findByText("best")).tagName).toBe("STRONG");
  await userEvent.click(screen.getByRole("button", { name: "移除标签 baseline" }));
  await waitFor(() => expect(changes).toEqual([{ tags: [] }]));
  await userEvent.click(screen.getByRole("button", { name: "编辑备注" }));
  const dialog = within(screen.getByRole("dialog"));
  await userEvent.type(dialog.getByRole("textbox"), "!");
  await userEvent.click(dialog.getByRole("button", { name: "保存" }));
  await waitFor(() => expect(changes.at(-1)).toEqual({ note: "**best** so far!" }));
});

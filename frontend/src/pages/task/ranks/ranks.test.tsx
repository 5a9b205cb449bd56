import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { beforeEach, expect, test, vi } from "vitest";
import { FakeEventSource } from "@/test/event-source";
import { task } from "@/test/fixtures";
import { apiUrl, respondWith, platformHandlers } from "@/test/platform";
import { renderAt } from "@/test/render";
import { pulse, seen, used } from "./fixtures";

vi.mock("../chart", () => ({ Chart: () => null }));
vi.mock("../task-telemetry", () => ({ default: ({ rank }: { rank?: number }) => <p>charts of rank {rank}</p> }));

const PER_NODE = 4;
const gang = (size: number, over: object = {}) => ({
  ...task,
  worldSize: size,
  nodes: Array.from({ length: size / PER_NODE }, (_, nodeRank) => ({
    ...task.nodes[0],
    nodeRank,
    environmentId: `env-${nodeRank}`,
    name: `node-${nodeRank}`,
    processes: PER_NODE,
  })),
  ranks: Array.from({ length: size }, (_, rank) => seen(rank).rank),
  ...over,
});
const serve = (size: number, gpu: (rank: number) => number, over: object = {}) => {
  const request = vi.fn();
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-1"), () => respondWith(gang(size, over))),
    http.get(apiUrl("/training-tasks/task-1/pulses"), () =>
      respondWith({ taskId: "task-1", attempt: 1, ranks: Array.from({ length: size }, (_, rank) => pulse(rank)) }),
    ),
    http.get(apiUrl("/training-tasks/task-1/telemetry/now"), () => {
      request();
      const ranks = Array.from({ length: size }, (_, rank) => used(rank, { gpu: gpu(rank), power: 300 }));
      return respondWith({ taskId: "task-1", at: "2026-11-21T05:00:00Z", emulated: true, ranks });
    }),
  );
  return request;
};
const cell = (rank: number) => screen.getByLabelText(new RegExp(`^rank ${rank},`));
const inspector = () => screen.getByRole("region", { name: "所选的 rank" });

beforeEach(() => localStorage.clear());

test("cells are coloured by what is chosen, which is remembered; a cell says its value", async () => {
  serve(16, (rank) => (rank === 6 ? 12 : 96));
  renderAt("/training/task-1");
  const choice = await screen.findByLabelText<HTMLSelectElement>("着色依据");
  expect([...choice.options].map(({ text }) => text)).toEqual([
    "状态",
    "GPU 利用率",
    "GPU 功耗",
    "落后步数",
    "距上一步",
  ]);
  expect(cell(6).getAttribute("aria-label")).toBe("rank 6, 运行");
  await userEvent.selectOptions(choice, "GPU 利用率");
  expect(cell(6).getAttribute("aria-label")).toBe("rank 6, 运行, GPU 利用率 12%");
  expect([cell(6).style.background, cell(7).style.background]).toEqual(["var(--heat-0)", "var(--heat-7)"]);
  expect(localStorage.getItem("fermi.ranks")).toBe("gpu");
  expect(screen.getByTitle("模拟：以进程的 CPU 用量代替 GPU 用量").textContent).toBe("模拟");
});

test("a rank that is far from the others is named, and can be shown alone", async () => {
  serve(16, (rank) => (rank === 6 ? 12 : 96));
  renderAt("/training/task-1");
  const odd = within(await screen.findByRole("region", { name: "与其他 rank 差别很大" }));
  await userEvent.click(odd.getByRole("button", { name: "node-1 上的 rank 6：GPU 利用率 12%，其余约 96%" }));
  expect(cell(6).getAttribute("aria-pressed")).toBe("true");
  await userEvent.click(odd.getByRole("checkbox", { name: "仅突出这些" }));
  expect([cell(6), cell(7)].map(({ className }) => className.includes("opacity-25"))).toEqual([false, true]);
});

test("pointing at a rank previews it, and pressing keeps it", async () => {
  serve(16, () => 96);
  renderAt("/training/task-1");
  await waitFor(() => expect(inspector().textContent).toContain("96%"));
  await userEvent.hover(cell(9));
  expect(inspector().textContent).toContain("rank 9 ·");
  await userEvent.unhover(cell(9));
  expect(inspector().textContent).toContain("rank 0 ·");
  await userEvent.click(cell(9));
  await userEvent.hover(cell(3));
  await userEvent.unhover(cell(3));
  expect(inspector().textContent).toContain("node-2 · 本机第 1 个 · GPU 1 · 进程号 109");
});

test("the map is one stop for Tab; arrows move, and what has the focus is previewed", async () => {
  serve(16, () => 96);
  renderAt("/training/task-1");
  await waitFor(() => expect(cell(0).tabIndex).toBe(0));
  expect(document.querySelectorAll('[data-rank][tabindex="0"]')).toHaveLength(1);
  cell(0).focus();
  await userEvent.keyboard("{ArrowRight}{ArrowRight}");
  expect(document.activeElement).toBe(cell(2));
  expect(inspector().textContent).toContain("rank 2 ·");
  await userEvent.keyboard("{End}{Enter}");
  expect(cell(15).getAttribute("aria-pressed")).toBe("true");
  expect(cell(15).tabIndex).toBe(0);
});

test("the inspector leads to the rank's log and to its charts", async () => {
  serve(16, () => 96);
  renderAt("/training/task-1");
  await waitFor(() => expect(inspector().textContent).toContain("96%"));
  await userEvent.click(cell(5));
  await userEvent.click(within(inspector()).getByRole("button", { name: "查看曲线" }));
  await screen.findByText("charts of rank 5");
  await userEvent.click(within(inspector()).getByRole("button", { name: "查看日志" }));
  expect((await screen.findByLabelText<HTMLSelectElement>("进程")).value).toBe("5");
  expect(FakeEventSource.opened.at(-1)?.url).toContain("logs=5");
});

test("512 ranks stand in the wide column with short names, and their pulses are folded away", async () => {
  serve(512, () => 96);
  renderAt("/training/task-1");
  await screen.findByText("各 rank 的进度");
  expect(document.querySelectorAll("[data-rank]")).toHaveLength(512);
  expect(document.querySelector("aside [data-rank]")).toBeNull();
  expect(screen.getByText("127", { selector: "span" }).title).toBe("node-127");
  expect(screen.queryByRole("group", { name: "各 rank 的进度" })).toBeNull();
});

test("of a task that is over nothing is measured: its ranks say how they ended, each kind in its own shape", async () => {
  const ending = (rank: number) => (rank === 6 ? "failed" : rank === 7 ? "after" : "ended");
  const ranks = gang(16).ranks.map((rank) => ({ ...rank, state: "exited", exitCode: 1, ending: ending(rank.rank) }));
  const attempts = task.attempts.map((attempt) => ({ ...attempt, failedRank: 6 }));
  const query = serve(16, () => 96, { status: "failed", endedAt: task.startedAt, ranks, attempts });
  renderAt("/training/task-1");
  await screen.findByText("最先失败 1");
  for (const count of ["随后失败 1", "由平台结束 14"]) expect(screen.getByText(count)).toBeTruthy();
  expect(inspector().textContent).toContain("rank 6 · 最先失败");
  expect([5, 6, 7].map((rank) => cell(rank).className.includes("rounded-full"))).toEqual([false, true, false]);
  expect(screen.queryByLabelText("着色依据")).toBeNull();
  expect(query).not.toHaveBeenCalled();
});

const finding = (code: string, level: string, rank: number, over: object = {}) => ({
  code,
  level,
  message: `rank ${rank} 太慢`,
  hint: "",
  since: null,
  until: null,
  attempt: task.attempt,
  where: [{ rank, nodeRank: 0, node: "node-0" }],
  evidence: [],
  actions: [],
  ...over,
});
const diagnose = (...findings: object[]) => {
  const answer = { taskId: "task-1", status: "running", healthy: false, summary: "有 rank 太慢", findings };
  platformHandlers.use(http.get(apiUrl("/training-tasks/task-1/diagnosis"), () => respondWith(answer)));
};
const marked = () => screen.getAllByLabelText(/诊断指出的 rank$/).map((each) => each.dataset.rank);

test("ranks that the diagnosis names are marked, and the worst is chosen until the reader chooses another", async () => {
  serve(16, () => 96);
  diagnose(
    finding("RANK_SLOW", "warn", 6),
    finding("RANK_SLOW", "warn", 9),
    finding("RANK_SLOW", "info", 3),
    finding("RANK_SLOW", "warn", 2, { attempt: task.attempt - 1 }),
    finding("RANK_SLOW", "warn", 1, { until: "2026-11-21T05:00:00Z" }),
  );
  const { address } = renderAt("/training/task-1");
  await waitFor(() => expect(marked()).toEqual(["6", "9"]));
  expect(cell(6).getAttribute("aria-pressed")).toBe("true");
  expect(address()).toBe("/training/task-1");
  await userEvent.click(cell(2));
  expect(cell(2).getAttribute("aria-pressed")).toBe("true");
  expect(address()).toBe("/training/task-1?rank=2");
});

test("the chosen rank and the open tab are in the address", async () => {
  serve(16, () => 96);
  diagnose(finding("RANK_SLOW", "warn", 6));
  const { address } = renderAt("/training/task-1?tab=machines&rank=5");
  expect(await screen.findByText("charts of rank 5")).toBeTruthy();
  await userEvent.click(screen.getByRole("tab", { name: "事件" }));
  expect(address()).toBe("/training/task-1?tab=events&rank=5");
  await userEvent.click(screen.getByRole("tab", { name: "日志" }));
  expect(address()).toBe("/training/task-1?rank=5");
});

test("an address with a tab or a rank that there is none of shows the first ones", async () => {
  serve(16, () => 96);
  renderAt("/training/task-1?tab=nothing&rank=99");
  await waitFor(() => expect(cell(0).getAttribute("aria-pressed")).toBe("true"));
  expect(screen.getByRole("tab", { name: "日志" }).getAttribute("aria-selected")).toBe("true");
});

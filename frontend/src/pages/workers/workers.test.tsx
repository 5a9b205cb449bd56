import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test, vi } from "vitest";
import { worker } from "@/test/fixtures";
import {
  apiUrl,
  respondWithList,
  me,
  respondWith,
  platformHandlers,
  respondWithError,
  buildUser,
} from "@/test/platform";
import { renderAt } from "@/test/render";
import { formatExports } from "./environment-preview";

vi.mock("@/ui/telemetry/time-chart", () => ({
  ...{ LEFT: 78, RIGHT: 12 },
  TimeChart: ({ label }: { label: string }) => <div role="img" aria-label={label} />,
}));

test("a worker shows its state, heartbeat, rank, process and use", async () => {
  const busy = worker("gn6-1", {
    status: "suspect",
    group: { id: "group-1", name: "bert" },
    rank: 1,
    localRank: 1,
    nodeRank: 0,
    worldSize: 4,
    process: { state: "running", pid: 4242, exitCode: null, taskId: "task-1", attempt: 1 },
    usage: {
      gpuUtilization: 87.4,
      gpuMemoryUsedMb: 2048,
      gpuMemoryTotalMb: 8192,
      cpuPercent: 12,
      memoryUsedMb: 512,
    },
  });
  platformHandlers.use(http.get(apiUrl("/workers"), () => respondWithList(busy)));
  renderAt("/workers");
  const row = (await screen.findByRole("checkbox", { name: "选择 gn6-1" })).closest("tr");
  const text = row?.textContent ?? "";
  for (const part of ["心跳迟到", "GPU 1", "bert", "1 / 4", "进程号 4242", "87%", "2 GiB / 8 GiB"])
    expect(text).toContain(part);
  expect(text).toMatch(/\d秒前/);
  expect(
    within(row as HTMLElement)
      .getByRole("meter")
      .getAttribute("aria-valuenow"),
  ).toBe("87");
});

test("where somebody may only look, nothing is offered that would be refused", async () => {
  const rows = [worker("gn6-0", { allowedActions: [] }), worker("gn7-0", { allowedActions: [] })];
  platformHandlers.use(http.get(apiUrl("/workers"), () => respondWithList(...rows)));
  renderAt("/workers");
  const tick = await screen.findByRole<HTMLInputElement>("checkbox", { name: "选择 gn6-0" });
  expect(tick.disabled).toBe(true);
  expect(screen.getByRole<HTMLInputElement>("checkbox", { name: "选择本页全部" }).disabled).toBe(true);
  expect(screen.queryByRole("button", { name: /移动|移到/ })).toBeNull();
  expect(screen.queryByRole("button", { name: "删除 gn6-0" })).toBeNull();
});

test("hosts are added to, and join tokens revoked of, projects of which one is more than a viewer", async () => {
  const token = { id: "j-1", name: "room A", createdAt: "2026-11-21T05:00:00Z", lastUsedAt: null };
  const theirs = { id: "project-2", name: "视觉", role: "viewer", warm: false, createdAt: token.createdAt };
  const both = { ...me, projects: [...me.projects, theirs] };
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () => respondWith(both)),
    http.get(apiUrl("/workers/join-tokens"), () =>
      respondWithList(
        { ...token, projectId: "project-1" },
        { ...token, id: "j-2", name: "room B", projectId: "project-2" },
      ),
    ),
  );
  renderAt("/workers/join-tokens");
  const row = (name: string) => within(screen.getByText(name).closest("li") as HTMLElement);
  await screen.findByText("room A");
  expect(row("room A").getByRole("button", { name: "撤销" })).toBeTruthy();
  expect(row("room B").queryByRole("button", { name: "撤销" })).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "添加 Worker" }));
  const dialog = within(await screen.findByRole("dialog"));
  expect(dialog.queryByLabelText("项目")).toBeNull();
});

test("a viewer is offered no adding of workers and no revoking, nor told to do so", async () => {
  const token = {
    id: "j-1",
    name: "room A",
    projectId: "project-1",
    createdAt: "2026-11-21T05:00:00Z",
    lastUsedAt: null,
  };
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () => respondWith(buildUser("viewer"))),
    http.get(apiUrl("/workers"), () => respondWithList()),
    http.get(apiUrl("/workers/join-tokens"), () => respondWithList(token)),
  );
  renderAt("/workers");
  await screen.findByText("还没有 Worker");
  expect(screen.queryByRole("button", { name: "添加 Worker" })).toBeNull();
  expect(screen.queryByText(/在每台主机上运行/)).toBeNull();
  await userEvent.click(screen.getByRole("link", { name: "加入令牌" }));
  await screen.findByText("room A");
  expect(screen.queryByRole("button", { name: "添加 Worker" })).toBeNull();
  expect(screen.queryByRole("button", { name: "撤销" })).toBeNull();
});

test("of several projects' workers, those that one may change can be moved and deleted", async () => {
  platformHandlers.use(
    http.get(apiUrl("/workers"), () => respondWithList(worker("gn6-0", { allowedActions: [] }), worker("gn7-0"))),
  );
  renderAt("/workers");
  const tick = await screen.findByRole<HTMLInputElement>("checkbox", { name: "选择 gn7-0" });
  expect(tick.disabled).toBe(false);
  expect(screen.getByRole("button", { name: "删除 gn7-0" })).toBeTruthy();
  expect(screen.queryByRole("button", { name: "删除 gn6-0" })).toBeNull();
});

test("filters live in the address and are sent to the server; a node is one click away", async () => {
  const query: string[] = [];
  platformHandlers.use(
    http.get(apiUrl("/workers"), ({ request }) => {
      query.push(new URL(request.url).search);
      return respondWithList(worker("gn6-0"), worker("gn7-0"));
    }),
  );
  const page = renderAt("/workers?status=lost");
  await userEvent.click(await screen.findByRole("button", { name: "只看节点 gn7" }));
  await userEvent.selectOptions(screen.getByLabelText("分组"), "bert");
  await waitFor(() => expect(page.address()).toBe("/workers?status=lost&node=gn7&group=group-1"));
  await waitFor(() => expect(query.at(-1)).toContain("group=group-1&node=gn7"));
  expect(query.at(-1)).toContain("status=lost");
});

test("an empty list says what to do; the command is shown once the token is made", async () => {
  platformHandlers.use(
    http.get(apiUrl("/workers"), () => respondWithList()),
    http.post(apiUrl("/workers/join-tokens"), () =>
      respondWith(
        { id: "j-1", name: "room A", token: "fermi_join_x", command: "fermi worker --token fermi_join_x" },
        201,
      ),
    ),
  );
  renderAt("/workers");
  await screen.findByText("还没有 Worker");
  await userEvent.click(screen.getAllByRole("button", { name: "添加 Worker" })[0] as HTMLElement);
  const dialog = within(await screen.findByRole("dialog"));
  await userEvent.type(dialog.getByLabelText("用途"), "room A");
  await userEvent.click(dialog.getByRole("button", { name: "创建令牌" }));
  expect((await dialog.findByLabelText("fermi-worker.sh")).textContent).toBe("fermi worker --token fermi_join_x");
  await userEvent.click(dialog.getAllByRole("button", { name: "关闭" })[0] as HTMLElement);
  await waitFor(() => expect(screen.queryByText("fermi_join_x")).toBeNull());
});

test("the ticked workers are moved together, and a refusal is said in the dialog", async () => {
  const sent: unknown[] = [];
  platformHandlers.use(
    http.post(apiUrl("/worker-groups/move"), async ({ request }) => {
      sent.push(await request.json());
      return sent.length === 1
        ? respondWithError(409, "WORKERS_HELD", "有误", [
            { field: "workerIds.0", error: "WORKER_HELD", message: "gn6-0 正被 task-1 使用", hint: "先停止它" },
          ])
        : respondWith({ moved: 2 });
    }),
  );
  renderAt("/workers");
  await userEvent.click(await screen.findByRole("checkbox", { name: "选择本页全部" }));
  await userEvent.click(screen.getByRole("button", { name: "移动到" }));
  const dialog = within(await screen.findByRole("dialog", { name: "把 2 个 Worker 移动到" }));
  await userEvent.click(dialog.getByRole("button", { name: "移动到" }));
  await dialog.findByText("gn6-0 正被 task-1 使用 先停止它");
  await userEvent.selectOptions(dialog.getByLabelText("目标分组"), "未分组");
  await userEvent.click(dialog.getByRole("button", { name: "移动到" }));
  await screen.findByText("已移动 2 个 Worker");
  expect(sent).toEqual([
    { workerIds: ["gn6-0", "gn7-0"], groupId: "group-1" },
    { workerIds: ["gn6-0", "gn7-0"], groupId: null },
  ]);
  await screen.findByRole("checkbox", { name: "选择 gn6-0", checked: false });
});

test("a worker's environment is previewed, ready to be pasted", async () => {
  platformHandlers.use(
    http.get(apiUrl("/workers/gn6-0/environment"), () =>
      respondWith({
        env: { RANK: "0", NCCL_DEBUG: "a b", MASTER_ADDR: "gn6" },
        problems: [{ field: "worldSize", error: "X", message: "World Size 太大", hint: "" }],
      }),
    ),
  );
  renderAt("/workers");
  await userEvent.click(await screen.findByRole("button", { name: "查看 gn6-0 的环境变量" }));
  const code = await screen.findByLabelText("gn6-0.sh");
  expect(code.textContent).toBe("export MASTER_ADDR=gn6\nexport RANK=0\nexport NCCL_DEBUG='a b'\n");
  expect(screen.getByText("World Size 太大")).toBeTruthy();
});

test("variables stand in the order in which one reads them", () => {
  const names = [
    "PATH",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "LOCAL_RANK",
    "RANK",
    "WORLD_SIZE",
    "MASTER_PORT",
    "MASTER_ADDR",
  ];
  const env = Object.fromEntries(names.map((name) => [name, "1"]));
  expect([...formatExports(env).matchAll(/export (\w+)/g)].map(([, name]) => name)).toEqual([
    "MASTER_ADDR",
    "MASTER_PORT",
    "WORLD_SIZE",
    "RANK",
    "LOCAL_RANK",
    "NODE_RANK",
    "LOCAL_WORLD_SIZE",
    "PATH",
  ]);
});

test("a worker is deleted, and a join token revoked, after a question", async () => {
  const deleted = vi.fn(() => respondWith(null));
  const revoked = vi.fn(() => respondWith(null));
  const token = {
    id: "j-1",
    name: "room A",
    projectId: "project-1",
    createdAt: "2026-11-21T05:00:00Z",
    lastUsedAt: null,
  };
  platformHandlers.use(
    http.delete(apiUrl("/workers/gn6-0"), deleted),
    http.get(apiUrl("/workers/join-tokens"), () => respondWithList(token)),
    http.delete(apiUrl("/workers/join-tokens/j-1"), revoked),
  );
  renderAt("/workers");
  await userEvent.click(await screen.findByRole("button", { name: "删除 gn6-0" }));
  expect(deleted).not.toHaveBeenCalled();
  await userEvent.click(within(await screen.findByRole("alertdialog")).getByRole("button", { name: "删除" }));
  await waitFor(() => expect(deleted).toHaveBeenCalledTimes(1));
  await userEvent.click(screen.getByRole("link", { name: "加入令牌" }));
  await userEvent.click(await screen.findByRole("button", { name: "撤销" }));
  await userEvent.click(within(await screen.findByRole("alertdialog")).getByRole("button", { name: "撤销" }));
  await waitFor(() => expect(revoked).toHaveBeenCalledTimes(1));
});

test("a worker's page shows what it is, what was measured of it, and who had it", async () => {
  const asked = vi.fn();
  platformHandlers.use(
    http.get(apiUrl("/workers/gn6-0"), () => respondWith(worker("gn6-0", { rank: 3, worldSize: 8 }))),
    http.get(apiUrl("/workers/gn6-0/telemetry"), ({ request }) => {
      asked(new URL(request.url).searchParams.getAll("metric"));
      return respondWith({
        ...{ from: "2026-11-21T05:00:00Z", to: "2026-11-21T06:00:00Z", stepSeconds: 1800, emulated: false },
        series: [{ metric: "gpu", unit: "%", index: "0", node: null, rank: null, values: [50, 75], most: null }],
        tasks: [
          { id: "task-1", name: "bert", from: "2026-11-21T05:00:00Z", to: "2026-11-21T05:30:00Z" },
          { id: null, name: "", from: "2026-11-21T05:30:00Z", to: null },
        ],
      });
    }),
  );
  renderAt("/workers");
  await userEvent.click(await screen.findByRole("link", { name: "gn6-0" }));
  expect(await screen.findByRole("img", { name: "GPU 利用率: 75 %" })).toBeTruthy();
  const tasks = within(screen.getByRole("region", { name: "使用者" }));
  expect(tasks.getByRole("link", { name: "bert" }).getAttribute("href")).toBe("/training/task-1");
  expect(tasks.getByText("其他项目的任务")).toBeTruthy();
  await userEvent.click(screen.getByText("选择"));
  await userEvent.click(screen.getByRole("button", { name: "GPU 降速" }));
  await waitFor(() => expect(asked).toHaveBeenLastCalledWith(expect.arrayContaining(["gpu", "throttled"])));
  expect(await screen.findByText("没有测量数据：GPU 降速")).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "恢复默认" }));
  await waitFor(() => expect(screen.queryByText("没有测量数据：GPU 降速")).toBeNull());
});

test("a worker that is not there says so", async () => {
  platformHandlers.use(http.get(apiUrl("/workers/gone"), () => respondWithError(404, "NOT_FOUND", "")));
  renderAt("/workers/gone");
  expect(await screen.findByRole("heading", { name: "没有这个 Worker" })).toBeTruthy();
});

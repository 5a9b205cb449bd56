import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { Attention, GpuCounts, Overview, TaskBrief } from "@/api/types";
import { limits, task } from "@/test/fixtures";
import { apiUrl, respondWithList, me, respondWith, platformHandlers } from "@/test/platform";
import { renderAt } from "@/test/render";

const tally = (key: string, over: Partial<GpuCounts> = {}): GpuCounts => ({
  key,
  name: key,
  total: 16,
  outOfService: 2,
  free: 4,
  held: 10,
  busy: 6,
  idle: 3,
  unknown: 1,
  ...over,
});
const hours = (count: number) =>
  Array.from({ length: count }, (_, index) => ({
    at: new Date(Date.UTC(2026, 10, 20, index)).toISOString(),
    there: 16,
    held: 8,
    measured: 16,
    used: 4,
  }));
const overview: Overview = {
  at: "2026-11-21T12:00:00Z",
  all: true,
  tasks: {
    initializing: 0,
    queued: 2,
    starting: 0,
    running: 3,
    stopping: 0,
    succeeded: 9,
    failed: 1,
    stopped: 0,
  },
  gpus: tally("", { name: "" }),
  zones: [tally("北京"), tally("上海", { total: 0 })],
  types: [tally("H100")],
  projects: [tally("project-1", { name: "默认" })],
  people: [tally("ada"), tally("", { name: "" })],
  utilisation: { day: hours(24), month: hours(30) },
  queue: {
    total: 2,
    since: "2026-11-21T10:00:00Z",
    ages: [60, 600, 3600, 21600, 86400, null].map((upTo, index) => ({ upTo, count: index === 3 ? 2 : 0 })),
    reasons: [
      { code: "X", cause: "X:8 × H100", message: "还差 1 台", count: 2, since: "2026-11-21T10:00:00Z" },
      { code: "", cause: "", message: "", count: 1, since: "2026-11-21T10:00:00Z" },
    ],
    reasonsLeftOut: 0,
    oldest: [
      {
        taskId: "task-1",
        name: "waits",
        owner: "ada",
        projectId: "project-1",
        projectName: "默认",
        status: "queued",
        gpus: 8,
        since: "2026-11-21T10:00:00Z",
        reason: null,
      },
    ],
  },
  failures: {
    since: "2026-11-14T12:00:00Z",
    attempts: 4,
    tasks: 1,
    causes: [
      {
        code: "NODE_LOST",
        cause: "0123456789abcdef",
        attempts: 4,
        tasks: 1,
        message: "… 失联",
        example: "node-9 失联",
        taskId: "task-9",
      },
    ],
    causesLeftOut: 3,
    starts: 100,
    nodesBlamed: 1,
    nodes: [{ environmentId: "env-9", name: "node-9", starts: 10, failures: 4, standsOut: true }],
  },
  goodput: {
    since: "2026-11-14T12:00:00Z",
    gpuHours: 10,
    starting: 1,
    training: 8,
    saving: 0,
    lost: 1,
    redone: 0,
    idle: 0,
    hung: 0,
    goodput: 0.8,
    waited: 6,
    ettr: 0.5,
  },
  capacity: [
    { at: "2026-11-21T11:00:00Z", kind: "went", name: "node-3", gpus: 8, who: "", path: "/environments/env-3" },
  ],
};
const nothing: Overview = {
  ...overview,
  tasks: {
    initializing: 0,
    queued: 0,
    starting: 0,
    running: 0,
    stopping: 0,
    succeeded: 0,
    failed: 0,
    stopped: 0,
  },
  gpus: tally("", { total: 0, outOfService: 0, free: 0, held: 0, busy: 0, idle: 0, unknown: 0 }),
  zones: [],
  types: [],
  projects: [],
  people: [],
  utilisation: { day: hours(24).map((hour) => ({ ...hour, there: 0 })), month: [] },
  queue: { total: 0, since: null, ages: [], reasons: [], reasonsLeftOut: 0, oldest: [] },
  failures: { ...overview.failures, attempts: 0, tasks: 0, causes: [], causesLeftOut: 0, nodes: [] },
  goodput: { ...overview.goodput, gpuHours: 0, goodput: null },
  capacity: [],
};
const attention: Attention = {
  kinds: [
    { kind: "environment_unhealthy", level: "fail", count: 68 },
    { kind: "task_waits", level: "warn", count: 2 },
  ],
  items: [
    {
      kind: "environment_unhealthy",
      level: "fail",
      subject: { type: "environment", id: "env-7", name: "node-7" },
      message: "状态异常",
      hint: "",
      since: null,
      path: "/environments/env-7",
      holder: { taskId: "task-5", name: "held-here" },
    },
  ],
  total: 70,
  page: 1,
  pageSize: 12,
};

function shows(found: Overview, needs: Attention) {
  const query: string[] = [];
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () => respondWith({ ...me, isAdministrator: true })),
    http.get(apiUrl("/overview"), ({ request }) => {
      query.push(new URL(request.url).search);
      return respondWith(found);
    }),
    http.get(apiUrl("/overview/attention"), ({ request }) => {
      query.push(`attention${new URL(request.url).search}`);
      return respondWith(needs);
    }),
  );
  return query;
}

const brief = (taskId: string, over: Partial<TaskBrief> = {}) => ({ ...task, taskId, taskName: taskId, ...over });

const card = async (name: string) => {
  const found = (await screen.findByRole("heading", { name })).closest("section");
  if (!found) throw new Error(name);
  return within(found);
};

test("figures, and where each of them leads", async () => {
  shows(overview, attention);
  renderAt("/overview");
  expect((await screen.findByRole("link", { name: "占用但空闲: 3" })).getAttribute("href")).toBe(
    "/overview?kind=gpus_idle",
  );
  expect(screen.getByRole("link", { name: "等待中: 2" }).getAttribute("href")).toBe("/queue");
  expect(screen.getAllByRole("img").map((each) => each.getAttribute("aria-label"))).toContain(
    "GPU 总数: 使用中 6、占用，使用情况未知 1、占用但空闲 3、空闲 4、不可用 2",
  );
  expect((await card("利用率")).getByRole("img").getAttribute("aria-label")).toBe("占用 50 %、使用 25 %");
  const failures = await card("失败");
  expect(failures.getByRole("link", { name: "node-9" }).getAttribute("href")).toBe("/environments/env-9");
  expect(failures.getByText("异常偏多")).toBeTruthy();
  const cause = failures.getByRole("link", { name: "… 失联" });
  expect(cause.getAttribute("href")).toBe("/training?cause=0123456789abcdef");
  expect(cause.getAttribute("title")).toBe("node-9 失联");
  expect(failures.getByText("另有 3 种原因")).toBeTruthy();
  const queue = await card("排队");
  expect(queue.getByRole("link", { name: "还差 1 台" }).getAttribute("href")).toBe(
    "/training?status=queued&status=initializing&cause=X%3A8%20%C3%97%20H100",
  );
  expect((await card("容量变化")).getByRole("link", { name: "node-3" })).toBeTruthy();
  expect((await card("排队")).getByRole("link", { name: "waits" }).getAttribute("href")).toBe("/training/task-1");
});

test("all that needs somebody is counted; a kind and a page are in the address", async () => {
  const asked = shows(overview, attention);
  const page = renderAt("/overview?page=2");
  const needs = await card("需要处理");
  await needs.findByText("第 2 / 6 页");
  expect(needs.getByRole("link", { name: "node-7" }).getAttribute("href")).toBe("/environments/env-7");
  expect(needs.getByRole("link", { name: "held-here" }).getAttribute("href")).toBe("/training/task-5");
  await userEvent.click(needs.getByRole("button", { name: /环境异常.*68/ }));
  await waitFor(() => expect(page.address()).toBe("/overview?kind=environment_unhealthy"));
  await waitFor(() => expect(asked.at(-1)).toBe("attention?page=1&kind=environment_unhealthy&pageSize=12"));
  await userEvent.click(needs.getByRole("button", { name: /环境异常/, pressed: true }));
  await waitFor(() => expect(page.address()).toBe("/overview"));
});

test("GPUs are shown by zone, type, project or person, and the address says by what and of which", async () => {
  const asked = shows(overview, attention);
  const page = renderAt("/overview?project=project-1");
  const gpus = await card("GPU 分布");
  expect(gpus.getByRole("rowheader").textContent).toBe("北京");
  await userEvent.click(gpus.getByRole("button", { name: "用户" }));
  expect(gpus.getAllByRole("rowheader").map((each) => each.textContent)).toEqual(["ada", "其他"]);
  await userEvent.selectOptions(screen.getByLabelText("GPU 型号"), "H100");
  await waitFor(() => expect(page.address()).toBe("/overview?project=project-1&by=people&gpuType=H100"));
  await waitFor(() => expect(asked).toContain("?project=project-1&gpuType=H100"));
});

test("a cause opens its tasks, and is named above them until it is taken away", async () => {
  shows(overview, attention);
  const asked: (string | null)[] = [];
  platformHandlers.use(
    http.get(apiUrl("/training-tasks"), ({ request }) => {
      asked.push(new URL(request.url).searchParams.get("cause"));
      return respondWithList(brief("task-5"));
    }),
  );
  const page = renderAt("/overview");
  await userEvent.click((await card("失败")).getByRole("link", { name: "… 失联" }));
  await screen.findByRole("link", { name: "task-5" });
  expect(asked).toEqual(["0123456789abcdef"]);
  expect(screen.getByText("… 失联")).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "不限原因" }));
  await waitFor(() => expect(page.address()).toBe("/training"));
  await waitFor(() => expect(asked.at(-1)).toBeNull());
});

test("where nothing was trained yet, the first page leads to a first task", async () => {
  shows(
    { ...nothing, gpus: tally("", { name: "", total: 4, free: 4 }) },
    { ...attention, kinds: [], items: [], total: 0 },
  );
  renderAt("/overview");
  const begin = await card("这里还没有训练过任何任务");
  expect(begin.getByText("4 个 GPU 空闲。")).toBeTruthy();
  expect(begin.getByRole("link", { name: "创建训练任务" }).getAttribute("href")).toBe("/training/create");
  expect(screen.queryByRole("region", { name: "当前" })).toBeNull();
});

test("where there is nothing each part says so", async () => {
  shows(nothing, { ...attention, kinds: [], items: [], total: 0 });
  renderAt("/overview");
  await screen.findByText("没有需要处理的事项");
  for (const text of ["还没有环境", "没有失败", "没有变化", "没有任务在排队", "还没有记录，每十分钟记一次。"])
    expect(screen.getByText(text)).toBeTruthy();
});

test("the first page is the overview: of everything for an administrator", async () => {
  shows(overview, attention);
  const page = renderAt("/");
  await waitFor(() => expect(page.address()).toBe("/overview"));
  await card("利用率");
  await userEvent.click(screen.getByRole("button", { name: "我的" }));
  await waitFor(() => expect(page.address()).toBe("/overview?view=mine"));
  await card("剩余额度");
});

function ownTasks(running: object[], waiting: object[]) {
  platformHandlers.use(
    http.get(apiUrl("/training-tasks"), ({ request }) => {
      const { searchParams } = new URL(request.url);
      expect(searchParams.get("owner")).toBe("ada");
      return respondWithList(...(searchParams.getAll("status").includes("running") ? running : waiting));
    }),
  );
}

test("of a member, the first page has their tasks, GPUs, quota and what needs them", async () => {
  const asked = shows({ ...overview, people: [tally("ada", { held: 10, idle: 3 })] }, attention);
  ownTasks([brief("task-5")], [brief("task-6", { status: "queued" }), brief("task-7", { status: "queued" })]);
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () => respondWith(me)),
    http.get(apiUrl("/queue"), () => respondWithList({ taskId: "task-7", number: 4 })),
    http.get(apiUrl("/projects/:id/limits/users"), () =>
      respondWithList({
        username: "ada",
        mostGpus: 16,
        mostTasks: null,
        gpuHours: null,
        own: true,
        use: { gpus: 10, tasks: 3, gpuHours: 9 },
      }),
    ),
    http.get(apiUrl("/projects/:id/limits"), () =>
      respondWith({ ...limits, mostGpus: 40, use: { ...limits.use, gpus: 32 } }),
    ),
  );
  const page = renderAt("/");
  await waitFor(() => expect(page.address()).toBe("/overview"));
  await screen.findByRole("link", { name: "等待中: 2" });
  expect((await screen.findByRole("link", { name: "训练中: 1" })).getAttribute("href")).toBe(
    "/training?status=running&status=starting&status=stopping&owner=ada",
  );
  expect((await screen.findByText("我占用的 GPU")).parentElement?.textContent).toBe("我占用的 GPU103 个空闲");
  const own = await card("我运行中和等待中的任务");
  expect(own.getAllByRole("link").map((each) => each.getAttribute("href"))).toEqual([
    "/training?status=running&status=starting&status=stopping&status=queued&status=initializing&owner=ada",
    "/training/task-5",
    "/training/task-6",
    "/training/task-7",
  ]);
  await own.findByText(/4/);
  const left = await card("剩余额度");
  expect(left.getByText("剩余 6")).toBeTruthy();
  expect(left.getByText("剩余 8")).toBeTruthy();
  await (await card("需要处理")).findByRole("link", { name: "node-7" });
  expect(asked).toContain("attention?page=1&mine=true&pageSize=12");
  expect((await card("GPU 分布")).getByRole("rowheader").textContent).toBe("H100");
  await userEvent.click(screen.getByRole("button", { name: "我的项目" }));
  await waitFor(() => expect(page.address()).toBe("/overview?view=all"));
  await card("利用率");
});

test("who trains nothing and has no limits is told so", async () => {
  shows(nothing, { ...attention, kinds: [], items: [], total: 0 });
  ownTasks([], []);
  const none = { ...limits, mostGpus: null, mostTasks: null, gpuHours: null, budget: null };
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () => respondWith(me)),
    http.get(apiUrl("/projects/:id/limits/users"), () => respondWithList()),
    http.get(apiUrl("/projects/:id/limits"), () => respondWith(none)),
  );
  renderAt("/overview");
  await screen.findByText("你没有运行中或等待中的任务");
  await screen.findByText("没有限额");
  await screen.findByText("没有需要处理的事项");
});

import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { Schedule, ScheduleRun } from "@/api/types";
import { apiUrl, platformHandlers, respondWith, respondWithError, respondWithList } from "@/test/platform";
import { renderAt } from "@/test/render";
import { parameter, template } from "../templates/fixtures";
import { buildChange } from "./draft";
import { formatMoment } from "./moments";

const rates = { ...template, parameters: [parameter("lr", { type: "number", label: "学习率", default: 0.001 })] };

const schedule: Schedule = {
  id: "schedule-1",
  name: "nights",
  projectId: "project-1",
  templateId: "saved-1",
  templateName: "nightly",
  values: { lr: 0.5 },
  request: null,
  cron: "30 2 * * *",
  zone: "Asia/Shanghai",
  missed: "last",
  overlap: "queue",
  enabled: true,
  stopped: null,
  owner: "ada",
  nextAt: "2026-11-21T18:30:00Z",
  lastAt: null,
  lastTaskId: null,
  createdAt: "2026-11-20T05:00:00Z",
  updatedAt: "2026-11-20T05:00:00Z",
  mayChange: true,
};
const waiting: ScheduleRun = {
  moment: "2026-11-20T18:30:00Z",
  outcome: "pending",
  taskId: null,
  reason: { code: "SCHEDULE_WAITS", message: "等待任务 task-1 结束。", hint: "" },
  decidedAt: "2026-11-20T18:30:00Z",
};
const created: ScheduleRun = {
  ...waiting,
  moment: "2026-11-19T18:30:00Z",
  outcome: "created",
  taskId: "task-1",
  reason: null,
};
const failed: ScheduleRun = {
  ...created,
  outcome: "failed",
  taskId: null,
  reason: { code: "NAME_REQUIRED", message: "环境 env-1 已停止。", hint: "请先启动它。" },
};

function serve(found: Schedule = schedule, ...runs: ScheduleRun[]) {
  platformHandlers.use(
    http.get(apiUrl("/schedules"), () => respondWithList(found)),
    http.get(apiUrl("/schedules/moments"), ({ request }) =>
      new URL(request.url).searchParams.get("cron") === "61 * * * *"
        ? respondWithError(400, "INVALID_REQUEST", "有误", [
            { field: "cron", error: "CRON_INVALID", message: "分钟字段无效。", hint: "请使用 0 到 59。" },
          ])
        : respondWith({ moments: ["2026-11-21T18:30:00Z", "2026-11-22T18:30:00Z"] }),
    ),
    http.get(apiUrl("/schedules/schedule-1"), () => respondWith(found)),
    http.get(apiUrl("/schedules/schedule-1/runs"), () => respondWithList(...runs)),
    http.get(apiUrl("/saved-templates"), () => respondWithList(rates)),
    http.get(apiUrl("/saved-templates/saved-1"), () => respondWith(rates)),
  );
}

/** Records the bodies of changes, and answers with the schedule. */
function recordChanges() {
  const sent: unknown[] = [];
  platformHandlers.use(
    http.patch(apiUrl("/schedules/schedule-1"), async ({ request }) => {
      sent.push(await request.json());
      return respondWith({ ...schedule, enabled: false });
    }),
  );
  return sent;
}

test("the list says when each schedule runs what, and leads to both", async () => {
  serve();
  renderAt("/schedules");
  const table = await screen.findByRole("table");
  expect(within(table).getByRole("link", { name: "nights" }).getAttribute("href")).toBe("/schedules/schedule-1");
  expect(within(table).getByRole("link", { name: "nightly" }).getAttribute("href")).toBe("/templates/saved-1");
  expect(within(table).getByText("30 2 * * *")).toBeTruthy();
  expect(within(table).getByText("运行中")).toBeTruthy();
});

test("a platform without schedules says what they are for", async () => {
  platformHandlers.use(http.get(apiUrl("/schedules"), () => respondWithList()));
  renderAt("/schedules");
  expect(await screen.findByText("还没有定时")).toBeTruthy();
});

test("a schedule shows its next moments in its zone, why it waits, and what its policies mean", async () => {
  serve(schedule, waiting, created);
  renderAt("/schedules/schedule-1");
  const next = await screen.findByRole("list", { name: "接下来的时刻" });
  expect(await within(next).findAllByText(/02:30/)).toHaveLength(2);
  expect((await screen.findAllByText(/等待任务 task-1 结束/)).length).toBe(2);
  expect(screen.getByText(/该时刻等到之前的任务结束/)).toBeTruthy();
  const history = screen.getByRole("table");
  expect((await within(history).findByRole("link", { name: "first-task" })).getAttribute("href")).toBe(
    "/training/task-1",
  );
});

test("the newest refusal stands at the top until a task is created again", async () => {
  serve(schedule, failed);
  renderAt("/schedules/schedule-1");
  expect(await screen.findByText(/的任务被拒绝/)).toBeTruthy();
  expect(screen.getAllByText(/环境 env-1 已停止/).length).toBe(2);
});

test("a schedule is run at once and paused", async () => {
  serve();
  const sent = recordChanges();
  let ran = 0;
  platformHandlers.use(
    http.post(apiUrl("/schedules/schedule-1/runs"), () => {
      ran += 1;
      return respondWith({ ...waiting, reason: null }, 201);
    }),
  );
  renderAt("/schedules/schedule-1");
  await userEvent.click(await screen.findByRole("button", { name: "立即运行" }));
  expect(await screen.findByText("几秒内会创建任务")).toBeTruthy();
  expect(ran).toBe(1);
  await userEvent.click(screen.getByRole("button", { name: "暂停" }));
  expect(await screen.findByText("定时已暂停")).toBeTruthy();
  expect(sent).toEqual([{ enabled: false }]);
});

test("a schedule whose owner has left is taken over with what it runs", async () => {
  const stopped = { code: "SCHEDULE_OWNER_LEFT", message: "bo 已不能在项目中创建任务。", hint: "" };
  serve({ ...schedule, enabled: false, stopped, owner: "bo", nextAt: null });
  const sent = recordChanges();
  renderAt("/schedules/schedule-1");
  await screen.findByText("bo 已不能在项目中创建任务。");
  await userEvent.click(screen.getByRole("button", { name: "接管并恢复" }));
  await userEvent.click(within(await screen.findByRole("alertdialog")).getByRole("button", { name: "接管并恢复" }));
  await waitFor(() => expect(sent).toEqual([{ templateId: "saved-1", values: { lr: 0.5 }, enabled: true }]));
});

test("who may not change a schedule is offered no action, nor the form", async () => {
  serve({ ...schedule, mayChange: false });
  renderAt("/schedules/schedule-1");
  await screen.findByRole("list", { name: "接下来的时刻" });
  expect(screen.queryByRole("button", { name: /立即运行|暂停|删除/ })).toBeNull();
  expect(screen.queryByRole("link", { name: "修改" })).toBeNull();
});

test("a schedule is made of a template, and a wrong expression is pointed out while it is typed", async () => {
  serve();
  const sent: unknown[] = [];
  platformHandlers.use(
    http.post(apiUrl("/schedules"), async ({ request }) => {
      sent.push(await request.json());
      return respondWith(schedule, 201);
    }),
  );
  const page = renderAt("/schedules/create?template=saved-1");
  const cron = await screen.findByLabelText("Cron 表达式");
  await userEvent.clear(cron);
  await userEvent.type(cron, "61 * * * *");
  expect(await screen.findByText(/分钟字段无效/)).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "工作日 2:00" }));
  await waitFor(() => expect(screen.queryByText(/分钟字段无效/)).toBeNull());
  const zone = screen.getByLabelText("时区");
  await userEvent.clear(zone);
  await userEvent.type(zone, "Europe/Berlin");
  const rate = screen.getByLabelText("学习率");
  await userEvent.clear(rate);
  await userEvent.type(rate, "0.2");
  await userEvent.selectOptions(screen.getByLabelText("之前的任务仍在进行时"), "queue");
  await userEvent.click(screen.getByRole("button", { name: "保存" }));
  await waitFor(() => expect(page.address()).toBe("/schedules/schedule-1"));
  expect(sent).toEqual([
    {
      name: "nightly",
      projectId: "project-1",
      templateId: "saved-1",
      values: { lr: 0.2 },
      cron: "0 2 * * 1-5",
      zone: "Europe/Berlin",
      missed: "last",
      overlap: "queue",
    },
  ]);
});

test("a change of the name alone leaves the owner, and one of the values warns of the new owner", async () => {
  serve({ ...schedule, owner: "bo" });
  const sent = recordChanges();
  const page = renderAt("/schedules/schedule-1/edit");
  const name = await screen.findByLabelText("名称");
  await userEvent.type(name, "-2");
  expect(screen.queryByText(/你将代替 bo/)).toBeNull();
  await userEvent.type(screen.getByLabelText("学习率"), "1");
  expect(screen.getByText(/你将代替 bo/)).toBeTruthy();
  await userEvent.type(screen.getByLabelText("学习率"), "{Backspace}");
  await userEvent.click(screen.getByRole("button", { name: "保存" }));
  await waitFor(() => expect(page.address()).toBe("/schedules/schedule-1"));
  expect(sent).toEqual([{ name: "nights-2" }]);
});

test("a schedule that gets a template in place of its own request sends no request any more", () => {
  const own = { ...schedule, templateId: null, templateName: "", values: {}, request: { taskName: "x" } };
  const draft = { ...own, templateId: "saved-1" };
  expect(buildChange(own, draft, { lr: 1 })).toEqual({ templateId: "saved-1", values: { lr: 1 }, request: null });
  expect(buildChange(own, { ...draft, templateId: "" }, {})).toEqual({});
});

test("moments are written in their zone, and in UTC where the browser does not know it", () => {
  expect(formatMoment("2026-11-21T18:30:00Z", "Asia/Shanghai")).toMatch(/02:30/);
  expect(formatMoment("2026-11-21T18:30:00Z", "Mars/Base")).toMatch(/18:30/);
});

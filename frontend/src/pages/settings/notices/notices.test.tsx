import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { InboxItem, NoticeChannel, NoticeDelivery, NoticeRule } from "@/api/types";
import { apiUrl, respondWithList, respondWith, platformHandlers, respondWithError } from "@/test/platform";
import { renderAt } from "@/test/render";
import { parseTimeOfDay, formatTimeOfDay } from "./rule-fields";

const AT = "2026-11-21T05:00:00Z";

const channel: NoticeChannel = {
  id: "channel-1",
  name: "值班",
  scope: "me",
  projectId: null,
  kind: "webhook",
  address: "https://hooks.example.org/…",
  language: "zh",
  enabled: true,
  failures: 0,
  restsUntil: null,
  createdAt: AT,
  createdBy: "ada",
  lastSentAt: null,
};

const refused: NoticeDelivery = {
  id: "delivery-1",
  incidentId: null,
  what: "test",
  title: "Fermi：测试消息",
  outcome: "failed",
  createdAt: AT,
  dueAt: null,
  endedAt: AT,
  tries: [
    { at: AT, seconds: 0.2, answer: "no such room", error: { code: "CHANNEL_REFUSES", message: "服务器返回 404。" } },
  ],
};

const failed: InboxItem = {
  id: "incident-1",
  kind: "task_failed",
  level: "fail",
  projectId: "project-1",
  title: "任务 llm 失败",
  body: "节点 gn6-0 的显存不足。",
  path: "/training/task-1",
  times: 5,
  openedAt: AT,
  updatedAt: AT,
  overAt: null,
  at: AT,
  readAt: null,
  ids: ["incident-1"],
};

test("the bell says how much is unread, and who has read all of it sees none", async () => {
  let readAt: string | null = null;
  const read: unknown[] = [];
  platformHandlers.use(
    http.get(apiUrl("/inbox"), () =>
      respondWith({ items: [{ ...failed, readAt }], unread: readAt ? 0 : 1, total: 1, page: 1, pageSize: 10 }),
    ),
    http.post(apiUrl("/inbox/read"), async ({ request }) => {
      read.push(await request.json());
      readAt = AT;
      return respondWith({ unread: 0 });
    }),
  );
  renderAt("/settings");
  await userEvent.click(await screen.findByText("通知：1 条未读"));
  const bell = await screen.findByRole("region", { name: "通知" });
  const link = await within(bell).findByRole("link", { name: "任务 llm 失败" });
  expect(link.getAttribute("href")).toBe("/training/task-1");
  expect(within(bell).getByText("共 5 次")).toBeTruthy();
  await userEvent.click(within(bell).getByRole("button", { name: "全部标为已读" }));
  await screen.findByText("通知：0 条未读");
  expect(read).toEqual([{ ids: null }]);
});

test("a webhook's secret is shown once, and a refused address says at its field how to allow it", async () => {
  const sent: unknown[] = [];
  platformHandlers.use(
    http.get(apiUrl("/notice-channels"), () => respondWithList()),
    http.get(apiUrl("/notice-rules"), () => respondWithList()),
    http.post(apiUrl("/notice-channels"), async ({ request }) => {
      sent.push(await request.json());
      const hint = "加入 FERMI_NOTICE_HOSTS";
      return sent.length === 1
        ? respondWithError(400, "INVALID_REQUEST", "有误", [{ field: "address", error: "X", message: "不允许", hint }])
        : respondWith({ ...channel, secret: "fermi_whsec_1" }, 201);
    }),
  );
  renderAt("/settings/notices");
  await userEvent.click(await screen.findByRole("button", { name: "添加渠道" }));
  const dialog = await screen.findByRole("dialog");
  await userEvent.type(within(dialog).getByLabelText("名称"), "值班");
  await userEvent.selectOptions(within(dialog).getByLabelText("方式"), "webhook");
  await userEvent.type(within(dialog).getByLabelText("地址"), "https://hooks.example.org/x");
  await userEvent.click(within(dialog).getByRole("button", { name: "保存" }));
  await within(dialog).findByText("不允许 加入 FERMI_NOTICE_HOSTS");
  await userEvent.click(within(dialog).getByRole("button", { name: "保存" }));
  await within(dialog).findByText("fermi_whsec_1");
  expect(sent[1]).toEqual({
    name: "值班",
    scope: "me",
    projectId: null,
    kind: "webhook",
    address: "https://hooks.example.org/x",
    language: "zh",
    enabled: true,
  });
});

test("a test says what the server answered, and a channel of the platform is not a member's to change", async () => {
  platformHandlers.use(
    http.get(apiUrl("/notice-channels"), () =>
      respondWithList(channel, { ...channel, id: "channel-2", name: "平台群", scope: "platform" }),
    ),
    http.get(apiUrl("/notice-rules"), () => respondWithList()),
    http.post(apiUrl("/notice-channels/channel-1/test"), () => respondWith(refused)),
  );
  renderAt("/settings/notices");
  await userEvent.click(await screen.findByRole("button", { name: "通过 值班 发送测试消息" }));
  await screen.findByText("服务器返回 404。");
  expect(screen.getByText("no such room")).toBeTruthy();
  expect(screen.getByText("平台群")).toBeTruthy();
  expect(screen.queryByRole("button", { name: "移除 平台群" })).toBeNull();
});

test("a rule names its channels, what is told, and its quiet hours", async () => {
  const sent: unknown[] = [];
  platformHandlers.use(
    http.get(apiUrl("/notice-channels"), () => respondWithList(channel)),
    http.get(apiUrl("/notice-rules"), () => respondWithList()),
    http.post(apiUrl("/notice-rules"), async ({ request }) => {
      sent.push(await request.json());
      return respondWith({}, 201);
    }),
  );
  renderAt("/settings/notices");
  await userEvent.click(await screen.findByRole("button", { name: "添加规则" }));
  const dialog = await screen.findByRole("dialog");
  await userEvent.type(within(dialog).getByLabelText("名称"), "夜里");
  await userEvent.click(within(dialog).getByRole("checkbox", { name: "值班" }));
  await userEvent.click(within(dialog).getByRole("checkbox", { name: "任务重启" }));
  await userEvent.type(within(dialog).getByLabelText("任务重启达到次数"), "3");
  await userEvent.type(within(dialog).getByLabelText("开始"), "22:30");
  await userEvent.type(within(dialog).getByLabelText("结束"), "07:00");
  await userEvent.click(within(dialog).getByRole("button", { name: "保存" }));
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  expect(sent[0]).toMatchObject({
    scope: "me",
    channels: ["channel-1"],
    kinds: ["task_restarted"],
    restarts: 3,
    waitsSeconds: null,
    quietFrom: 22 * 60 + 30,
    quietTo: 7 * 60,
  });
});

test("the list says of a rule from how many restarts and minutes of waiting on it holds", async () => {
  const rule: NoticeRule = {
    id: "rule-1",
    name: "早知道",
    scope: "me",
    projectId: null,
    channels: [channel.id],
    kinds: ["task_restarted", "task_waits"],
    level: "info",
    restarts: 3,
    waitsSeconds: 600,
    quietFrom: null,
    quietTo: null,
    timezone: "UTC",
    breaksThrough: "fail",
    enabled: true,
    createdAt: AT,
  };
  platformHandlers.use(
    http.get(apiUrl("/notice-channels"), () => respondWithList(channel)),
    http.get(apiUrl("/notice-rules"), () =>
      respondWithList(rule, { ...rule, id: "rule-2", restarts: null, waitsSeconds: null }),
    ),
  );
  renderAt("/settings/notices");
  expect((await screen.findAllByText("任务重启满 3 次起 · 等待满 10 分钟起")).length).toBe(1);
  expect((await screen.findAllByText(/^任务重启, 任务等待过久 · /)).length).toBe(2);
});

test("minutes of the day go through a time field unchanged", () => {
  for (const minutes of [0, 61, 1439]) expect(parseTimeOfDay(formatTimeOfDay(minutes))).toBe(minutes);
  expect(parseTimeOfDay(formatTimeOfDay(null))).toBeNull();
});

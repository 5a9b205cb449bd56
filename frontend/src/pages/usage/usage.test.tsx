import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { Price, Usage } from "@/api/types";
import { apiUrl, me, respondWith, platformHandlers, respondWithError } from "@/test/platform";
import { renderAt } from "@/test/render";

type Item = Usage["items"][number];
const sum = {
  gpuHours: 10,
  openGpuHours: 2,
  starting: 1,
  training: 6,
  saving: 0.5,
  lost: 0.5,
  redone: 0,
  idle: 0,
  hung: 0,
  waited: 8,
  ettr: 0.5,
  cost: 123.5,
  goodput: 0.75,
};
const item = (key: string, over: Partial<Item> = {}): Item => ({
  ...sum,
  key,
  name: `name-of-${key}`,
  tasks: 3,
  ...over,
});

function uses(...items: Item[]) {
  const query: URLSearchParams[] = [];
  platformHandlers.use(
    http.get(apiUrl("/usage"), ({ request }) => {
      query.push(new URL(request.url).searchParams);
      return respondWith({
        items,
        total: sum,
        currency: "CNY",
        from: "2026-11-01T00:00:00Z",
        to: "2026-12-01T00:00:00Z",
      });
    }),
  );
  return query;
}

test("GPU-hours, cost, goodput, and what the time went into", async () => {
  uses(item("env-1"), item("env-2", { gpuHours: 5, cost: null, goodput: null, ettr: null }));
  renderAt("/usage?by=environment");
  const link = await screen.findByRole("link", { name: "name-of-env-1" });
  expect(link.getAttribute("href")).toBe("/environments/env-1");
  const [, first, second] = screen.getAllByRole("row");
  if (!first || !second) throw new Error("two rows");
  expect(first.textContent).toMatch(/10.*¥123\.50.*75%50%/);
  expect(within(first).getByRole("img").getAttribute("aria-label")).toBe(
    "name-of-env-1: 训练 6 GPU 小时、正在占用 2 GPU 小时、保存 30 GPU 分钟、启动 1 GPU 小时、因故障损失 30 GPU 分钟",
  );
  expect(second.textContent).toMatch(/–––$/);
});

test("the address says by what, of which project, and from when to when; a spreadsheet gets the same", async () => {
  const asked = uses(item("ada"));
  const page = renderAt("/usage?from=2026-11-01&to=2026-11-15");
  await screen.findByText("name-of-ada");
  await userEvent.selectOptions(screen.getByLabelText("统计维度"), "user");
  await userEvent.selectOptions(screen.getByLabelText("项目"), "project-1");
  await waitFor(() => expect(page.address()).toBe("/usage?from=2026-11-01&to=2026-11-15&by=user&project=project-1"));
  const wanted = {
    by: "user",
    project: "project-1",
    from: new Date(2026, 10, 1).toISOString(),
    to: new Date(2026, 10, 16).toISOString(),
  };
  await waitFor(() => expect(Object.fromEntries(asked.at(-1) ?? [])).toEqual(wanted));
  const csv = new URL(screen.getByRole("link", { name: "下载 CSV" }).getAttribute("href") ?? "", "http://fermi.test");
  expect(Object.fromEntries(csv.searchParams)).toEqual({ ...wanted, format: "csv" });
});

test("a refusal is said in the platform's words, and nothing used is said too", async () => {
  platformHandlers.use(
    http.get(apiUrl("/usage"), () => respondWithError(400, "TIMES_BACKWARDS", "结束早于开始"), { once: true }),
  );
  renderAt("/usage");
  await screen.findByText("结束早于开始");
  uses();
  await userEvent.click(screen.getByRole("button", { name: "重试" }));
  await screen.findByText("这段时间没有用量");
});

const price: Price = {
  gpuType: "A100",
  zoneId: "",
  zoneName: "",
  perGpuHour: 12.5,
  since: "2026-11-01T00:00:00Z",
};

test("everybody sees prices; administrators add one, and what is wrong stands at its field", async () => {
  const sent: unknown[] = [];
  platformHandlers.use(
    http.get(apiUrl("/prices"), () => respondWith({ currency: "CNY", prices: [price] })),
    http.put(apiUrl("/prices"), async ({ request }) => {
      sent.push(await request.json());
      return sent.length === 1
        ? respondWithError(400, "INVALID_REQUEST", "有误", [
            { field: "prices.1.perGpuHour", error: "X", message: "要是一个数", hint: "" },
          ])
        : respondWith({
            currency: "CNY",
            prices: [price, { ...price, gpuType: "H100", zoneId: "zone-a", zoneName: "北京可用区A" }],
          });
    }),
    http.get(apiUrl("/auth/me"), () => respondWith({ ...me, isAdministrator: true })),
  );
  renderAt("/usage/prices");
  await screen.findByText("¥12.50");
  await userEvent.click(await screen.findByRole("button", { name: "添加价格" }));
  const dialog = await screen.findByRole("dialog");
  await userEvent.type(within(dialog).getByLabelText("GPU 类型"), "H100");
  await userEvent.selectOptions(
    within(dialog).getByLabelText("可用区"),
    await within(dialog).findByText("北京可用区A"),
  );
  const amount = within(dialog).getByLabelText("每 GPU 小时");
  await userEvent.type(amount, "much");
  await userEvent.click(within(dialog).getByRole("button", { name: "保存" }));
  await within(dialog).findByText("要是一个数");
  await userEvent.clear(amount);
  await userEvent.type(amount, "30");
  await userEvent.click(within(dialog).getByRole("button", { name: "保存" }));
  await screen.findByRole("button", { name: "修改价格：H100 · 北京可用区A" });
  const old = { gpuType: "A100", zoneId: "", perGpuHour: 12.5 };
  expect(sent).toEqual([
    { prices: [old, { gpuType: "H100", zoneId: "zone-a", perGpuHour: "much" }] },
    { prices: [old, { gpuType: "H100", zoneId: "zone-a", perGpuHour: 30 }] },
  ]);
});

test("nobody else is offered to change prices", async () => {
  platformHandlers.use(http.get(apiUrl("/prices"), () => respondWith({ currency: "CNY", prices: [price] })));
  renderAt("/usage/prices");
  await screen.findByText("¥12.50");
  expect(screen.queryByRole("button", { name: /价格/ })).toBeNull();
});

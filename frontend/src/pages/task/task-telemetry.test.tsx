import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test, vi } from "vitest";
import { apiUrl, respondWith, platformHandlers } from "@/test/platform";
import { renderAt } from "@/test/render";

vi.mock("./chart", () => ({ Chart: () => null }));
vi.mock("@/ui/telemetry/time-chart", () => ({
  TimeChart: ({ label }: { label: string }) => <div role="img" aria-label={label} />,
}));

const series = (metric: string, rank: number, values: (number | null)[]) => ({
  ...{ metric, rank, values, unit: "%", index: String(rank), node: 0, most: null },
});

const asked = vi.fn<(query: URLSearchParams) => void>();

const machines = async (more: object, address = "/training/task-1") => {
  const times = { from: "2026-11-21T05:00:00Z", to: "2026-11-21T05:01:00Z", stepSeconds: 15 };
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/:id/telemetry"), ({ request }) => {
      asked(new URL(request.url).searchParams);
      return respondWith({ ...times, emulated: false, marks: [], series: [], ...more });
    }),
  );
  const page = renderAt(address);
  await userEvent.click(await screen.findByRole("tab", { name: "机器" }));
  return page;
};

test("what was measured has a chart each, that says its newest values", async () => {
  await machines({ emulated: true, series: [series("gpu", 0, [10, 20, null]), series("gpu", 1, [10, 60, null])] });
  expect(await screen.findByRole("img", { name: "GPU 利用率: 20 % – 60 %，共 2 条" })).toBeTruthy();
  expect(screen.getByText(/模拟：/)).toBeTruthy();
});

test("nothing measured says why", async () => {
  await machines({});
  expect(await screen.findByText("没有测量数据")).toBeTruthy();
  expect(screen.getByText(/15 秒/)).toBeTruthy();
});

test("each line has its name and its newest value", async () => {
  await machines({ series: [series("gpu", 0, [10, 20, null]), series("gpu", 1, [10, null, 60])] });
  const entries = (await screen.findAllByRole("listitem")).map(({ textContent }) => textContent);
  expect(entries).toEqual(expect.arrayContaining(["Rank 020 %", "Rank 160 %"]));
});

test("of many ranks the slowest is named", async () => {
  await machines({
    series: Array.from({ length: 40 }, (_, rank) => series("gpu", rank, [rank === 17 ? 3 : 90 + rank / 10])),
  });
  const entries = (await screen.findAllByRole("listitem")).map(({ textContent }) => textContent);
  expect(entries).toEqual(expect.arrayContaining(["最小Rank 173 %", "最大Rank 3993.9 %"]));
});

test("nodes, ranks and the stretch of time come from the address, and all can be shown again", async () => {
  const page = await machines(
    { series: [series("gpu", 1, [10])] },
    "/training/task-1?ranks=0-1&from=1763701200&to=1763701230",
  );
  await waitFor(() => expect(asked.mock.lastCall?.[0].getAll("rank")).toEqual(["0", "1"]));
  expect(asked.mock.lastCall?.[0].get("from")).toBe("2025-11-21T05:00:00.000Z");
  await userEvent.click(await screen.findByRole("button", { name: "显示全部" }));
  expect(page.address()).toBe("/training/task-1?tab=machines");
  await waitFor(() => expect(asked.mock.lastCall?.[0].has("rank")).toBe(false));
  await userEvent.click(screen.getByText("选择"));
  await userEvent.type(screen.getByLabelText("Rank"), "1-99");
  expect(screen.getByRole("alert").textContent).toMatch(/0 到/);
  expect(page.address()).toMatch(/ranks=1$/);
});

import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { Span, TimelineEnvironment } from "@/api/types";
import { apiUrl, respondWith, platformHandlers, respondWithError } from "@/test/platform";
import { renderAt } from "@/test/render";
import { positionSpan, buildRows, computeTicks, DEFAULT_ZOOM_HOURS, computeWindow } from "./window";

const HOUR = 3_600_000;
const inHours = (hours: number) => new Date(Date.now() + hours * HOUR).toISOString();
const span = (over: Partial<Span> = {}): Span => ({
  taskId: "task-1",
  name: "first-task",
  from: inHours(-1),
  to: inHours(2),
  sure: true,
  kind: "held",
  ...over,
});
const row = (number: number, ...spans: Span[]): TimelineEnvironment => ({
  id: `env-${number}`,
  name: `gn${number}`,
  zone: number % 2 ? "可用区A" : "可用区B",
  gpuType: "A100",
  gpuCount: 4,
  spans,
});

const shows = (...environments: TimelineEnvironment[]) => {
  const query: URLSearchParams[] = [];
  platformHandlers.use(
    http.get(apiUrl("/environments/timeline"), ({ request }) => {
      query.push(new URL(request.url).searchParams);
      return respondWith({ environments });
    }),
  );
  return query;
};
const hoursOf = (asked: URLSearchParams | undefined) =>
  ["from", "to"].map((name) => Math.round((new Date(asked?.get(name) ?? "").getTime() - Date.now()) / HOUR));

test("who holds what, who is next, what is set aside, and what is only an estimate", async () => {
  shows(
    row(
      1,
      span(),
      span({ taskId: "task-2", name: "second", from: inHours(2), to: null, sure: false, kind: "next" }),
      span({ taskId: null, name: "升级驱动", from: inHours(5), to: inHours(6), kind: "maintenance" }),
    ),
    row(2, span({ taskId: null, name: "" })),
  );
  renderAt("/queue/timeline");
  const held = await screen.findByRole("link", { name: /^占用: first-task/ });
  expect(held.getAttribute("href")).toBe("/training/task-1");
  expect(screen.getByRole("link", { name: /^下一个: second, .*无法预估/ }).textContent).toContain("≈");
  expect(screen.getByTitle(/^维护: 升级驱动/).tagName).toBe("SPAN");
  expect(screen.getByTitle(/^占用: 其他人的任务/).tagName).toBe("SPAN");
  expect(screen.getByRole("heading", { name: /可用区A/ })).toBeTruthy();
});

test("the past six hours and the next 24 are asked for; buttons move and zoom", async () => {
  const asked = shows(row(1, span()));
  renderAt("/queue/timeline");
  await screen.findByText("gn1");
  expect(hoursOf(asked.at(-1))).toEqual([-6, 24]);
  await userEvent.click(screen.getByRole("button", { name: "向后" }));
  await waitFor(() => expect(hoursOf(asked.at(-1))).toEqual([9, 39]));
  await userEvent.click(screen.getByRole("button", { name: "现在" }));
  await userEvent.click(screen.getByRole("button", { name: "放大" }));
  await waitFor(() => expect(hoursOf(asked.at(-1))).toEqual([-2, 10]));
});

test("a thousand environments are a few rows of the page, and all of the table's", async () => {
  shows(...Array.from({ length: 1000 }, (_, index) => row(index, span())));
  const page = renderAt("/queue/timeline");
  await screen.findByText("gn1");
  expect(screen.getAllByRole("link", { name: /^gn/ }).length).toBeLessThan(100);
  await userEvent.click(screen.getByRole("button", { name: "表格" }));
  expect(page.address()).toBe("/queue/timeline?view=table");
  await screen.findByText("第 1 / 20 页");
  const first = screen.getAllByRole("row")[1];
  if (!first) throw new Error("no row");
  expect(within(first).getByRole("rowheader").textContent).toBe("gn0");
  expect(within(first).getByRole("link", { name: "first-task" })).toBeTruthy();
});

test("what the platform refuses is said, and asked again on demand", async () => {
  platformHandlers.use(
    http.get(apiUrl("/environments/timeline"), () => respondWithError(403, "FORBIDDEN", "这个项目不让你看"), {
      once: true,
    }),
  );
  renderAt("/queue/timeline?project=project-9");
  await screen.findByText("这个项目不让你看");
  shows(row(1));
  await userEvent.click(screen.getByRole("button", { name: "重试" }));
  await screen.findByText("gn1");
});

test("a span is cut at the window; one without an end reaches its edge", () => {
  const window = computeWindow(Date.UTC(2026, 10, 23, 12), DEFAULT_ZOOM_HOURS, 0);
  const at = (hours: number) => new Date(window.from + hours * HOUR).toISOString();
  expect(positionSpan(span({ from: at(-5), to: at(15) }), window)).toEqual({ left: 0, width: 50 });
  expect(positionSpan(span({ from: at(15), to: null }), window)).toEqual({ left: 50, width: 50 });
  expect(positionSpan(span({ from: at(-5), to: at(0) }), window)).toBeUndefined();
  expect(positionSpan(span({ from: null, to: null }), window)).toEqual({ left: 90, width: 10 });
  expect(computeTicks(window).length).toBeLessThanOrEqual(10);
  expect(buildRows([row(2), row(1), row(3)])).toMatchObject([
    { zone: "可用区A", count: 2 },
    { environment: { id: "env-1" } },
    { environment: { id: "env-3" } },
    { zone: "可用区B", count: 1 },
    { environment: { id: "env-2" } },
  ]);
});

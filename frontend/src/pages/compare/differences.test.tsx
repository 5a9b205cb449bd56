import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { beforeAll, expect, test } from "vitest";
import { createQueryClient } from "@/app/query-client";
import { withPageTexts } from "@/i18n";
import { apiUrl, platformHandlers, respondWith } from "@/test/platform";
import { Differences } from "./differences";

beforeAll(() => withPageTexts(Promise.resolve()));

const run = (taskId: string) => ({ taskId, taskName: taskId, status: "succeeded", createdAt: "2026-11-28T00:00:00Z" });
const difference = (kind: string, name: string, weight: number) => ({
  kind,
  name,
  left: "a",
  right: "b",
  weight,
  code: `X ${name}`,
  message: `${kind} ${name} differs`,
  hint: "",
});
const NOTHING = {
  left: run("task-1"),
  right: run("task-2"),
  differences: [],
  leftOut: 0,
  curves: [],
  files: [],
  filesLeftOut: 0,
  gaps: [],
};

function open(found: object) {
  platformHandlers.use(
    http.get(apiUrl("/runs/differences"), ({ request }) => {
      const { searchParams } = new URL(request.url);
      expect([searchParams.get("left"), searchParams.get("right")]).toEqual(["task-1", "task-2"]);
      return respondWith({ ...NOTHING, ...found });
    }),
  );
  render(
    <QueryClientProvider client={createQueryClient()}>
      <Differences left="task-1" right="task-2" />
    </QueryClientProvider>,
  );
}

test("differences keep the platform's order, each with how likely it matters", async () => {
  open({ differences: [difference("data", "", 100), difference("seed", "seed", 40), difference("time", "idle", 8)] });
  const list = await screen.findByRole("list");
  screen.getByText("task-1 → task-2");
  expect(
    within(list)
      .getAllByRole("listitem")
      .map(({ textContent }) => textContent),
  ).toEqual(["很可能data  differs", "可能seed seed differs", "次要time idle differs"]);
});

test("the lines of changed code open under their difference", async () => {
  const file = {
    path: "train.py",
    change: "changed",
    diff: "@@ -1 +1 @@\n-LR = 1\n+LR = 2\n",
    binary: false,
    cut: false,
  };
  open({ differences: [difference("code", "", 95)], files: [file] });
  const title = await screen.findByText("train.py");
  expect(screen.queryByText(/LR = 2/)).toBeNull();
  await userEvent.click(title);
  expect((await screen.findByText(/LR = 2/)).className).toContain("text-ok-ink");
});

test("only the first differences are shown until the reader asks for all", async () => {
  open({ differences: Array.from({ length: 20 }, (_, n) => difference("package", `p${String(n)}`, 50)), leftOut: 3 });
  await screen.findByText("package p11 differs");
  expect(screen.queryByText("package p12 differs")).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "还有 8 处" }));
  screen.getByText("package p19 differs");
  screen.getByText("另有 3 处差异没有列出。");
});

test("a parting is shown with what the noise is known from, and what could not be compared", async () => {
  const curve = {
    metric: "loss",
    verdict: "parted",
    basis: "own",
    sisters: 0,
    points: 400,
    step: 200,
    left: 2,
    right: 2.5,
    margin: 0.1,
    identicalUntil: 100,
    code: "X",
    message: "loss parts at step 200",
    hint: "another seed may part as much",
  };
  open({ curves: [curve], gaps: [{ code: "X", message: "no packages of task-1", hint: "" }] });
  const curves = await screen.findByRole("list", { name: "曲线" });
  expect(curves.textContent).toBe(
    "分开loss parts at step 200another seed may part as much到第 100 步为止，所有值完全相同。",
  );
  expect(screen.getByRole("list", { name: "无法比较的内容" }).textContent).toContain("no packages of task-1");
  screen.getByText("已知的内容没有差异。");
});

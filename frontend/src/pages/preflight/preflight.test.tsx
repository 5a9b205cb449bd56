import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test, vi } from "vitest";
import type { Preflight } from "@/api/types";
import { preflight, task } from "@/test/fixtures";
import { apiUrl, respondWith, platformHandlers, respondWithError } from "@/test/platform";
import { renderAt } from "@/test/render";
import { buildCells, moveSelection, findWorstCell } from "./matrix";

vi.mock("@/pages/task/chart", () => ({ Chart: () => null }));

const square = (name: RegExp) => screen.findByRole("button", { name });

test("the verdict names the culprit and what to do; the worst square is open", async () => {
  renderAt("/preflight/preflight-1");
  await screen.findByRole("heading", { name: /一条线路很慢/ });
  screen.getByText("gn7 的下行很慢");
  screen.getByText(/换掉它，或修好网线/);
  const details = within(screen.getByRole("region", { name: "详情" }));
  details.getByText("gn6 → gn7 只有 94 Mbit/s");
  details.getByText("0.21 毫秒");
  expect((await square(/^gn6 → gn7, 有提醒, 0.21 毫秒$/)).getAttribute("aria-pressed")).toBe("true");
});

test("the arrow keys go from square to square, and the details follow", async () => {
  renderAt("/preflight/preflight-1");
  (await square(/^gn6 → gn7/)).focus();
  await userEvent.keyboard("{ArrowDown}");
  expect(document.activeElement).toBe(await square(/^节点 gn7, 通过$/));
  await userEvent.keyboard("{ArrowLeft}{ArrowLeft}");
  expect(document.activeElement).toBe(await square(/^gn7 → gn6, 通过/));
  within(screen.getByRole("region", { name: "详情" })).getByText("940 Mbit/s");
});

test("a run that goes on keeps a place for what has not come yet, and looks again", async () => {
  let over = false;
  const [first, second] = preflight.nodes;
  if (!first || !second) throw new Error("the fixture has two nodes");
  const running: Preflight = {
    ...preflight,
    status: "running",
    endedAt: null,
    nodes: [first, { ...second, level: "unknown", findings: [] }],
    pairs: [],
    together: null,
    verdict: null,
  };
  platformHandlers.use(http.get(apiUrl("/preflights/:id"), () => respondWith(over ? preflight : running)));
  renderAt("/preflight/preflight-1");
  await screen.findByText("正在检查，结果会逐项出现。");
  expect(screen.getAllByRole("button", { name: /等待结果$/ })).toHaveLength(3);
  over = true;
  await screen.findByRole("heading", { name: /一条线路很慢/ });
});

test("the worst square is a node before a link, and keys stay inside", () => {
  const [a, b] = preflight.nodes;
  if (!a || !b) throw new Error("the fixture has two nodes");
  const cells = buildCells({ ...preflight, nodes: [a, { ...b, level: "warn" }] });
  expect(cells.map((line) => line.map(({ level }) => level))).toEqual([
    ["pass", "warn"],
    ["pass", "warn"],
  ]);
  expect(findWorstCell(cells)).toEqual([1, 1]);
  expect(moveSelection([0, 1], "ArrowRight", 2)).toEqual([0, 1]);
  expect(moveSelection([1, 1], "Home", 2)).toEqual([1, 0]);
  expect(moveSelection([1, 1], "a", 2)).toBeUndefined();
});

test("a new run is started with the environments of the address, and a refusal is told", async () => {
  const sent: unknown[] = [];
  platformHandlers.use(
    http.post(apiUrl("/preflights"), async ({ request }) => {
      sent.push(await request.json());
      return sent.length === 1
        ? respondWithError(400, "INVALID_REQUEST", "有误", [
            { field: "environmentIds.0", error: "X", message: "name-of-env-2 没有运行", hint: "" },
          ])
        : respondWith(preflight, 201);
    }),
  );
  const page = renderAt("/preflight/create?environments=env-2");
  await userEvent.click(await screen.findByRole("checkbox", { name: /name-of-env-1/ }));
  await userEvent.click(screen.getByRole("radio", { name: /完整/ }));
  await userEvent.click(screen.getByRole("button", { name: "开始预检" }));
  await screen.findByText("name-of-env-2 没有运行");
  await userEvent.selectOptions(screen.getByLabelText("主节点"), "name-of-env-1");
  await userEvent.click(screen.getByRole("button", { name: "开始预检" }));
  await waitFor(() => expect(page.address()).toBe("/preflight/preflight-1"));
  expect(sent).toEqual([
    { environmentIds: ["env-2", "env-1"], level: "full", masterNode: "env-2" },
    { environmentIds: ["env-2", "env-1"], level: "full", masterNode: "env-1" },
  ]);
});

test("the list shows how each went and leads to it", async () => {
  renderAt("/preflight");
  const link = await screen.findByRole("link", { name: "gn6, gn7" });
  expect(link.getAttribute("href")).toBe("/preflight/preflight-1");
  expect(link.closest("tr")?.textContent).toContain("有提醒");
});

test("a task leads to its pre-flight, and is told well without dataset and model", async () => {
  const ofGroup = { ...task, datasetId: null, datasetVersionId: null, modelId: null, preflightId: "preflight-1" };
  platformHandlers.use(http.get(apiUrl("/training-tasks/task-1"), () => respondWith(ofGroup)));
  renderAt("/training/task-1");
  const link = await screen.findByRole("link", { name: "preflight-1" });
  expect(link.getAttribute("href")).toBe("/preflight/preflight-1");
  expect(link.closest("dl")?.textContent).not.toContain("null");
});

test("a task's scripts are downloaded for a target; a refusal is told", async () => {
  const saved: string[] = [];
  vi.stubGlobal("URL", Object.assign(URL, { createObjectURL: () => "blob:x", revokeObjectURL: () => undefined }));
  const click = vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(function (this: HTMLAnchorElement) {
    saved.push(this.download);
  });
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-1/scripts"), ({ request }) =>
      new URL(request.url).searchParams.get("target") === "compose"
        ? respondWithError(400, "INVALID_REQUEST", "不能用 compose 启动")
        : new Response("tar", { headers: { "Content-Disposition": 'attachment; filename="task-1-slurm.tar.gz"' } }),
    ),
  );
  renderAt("/training/task-1");
  await userEvent.click(await screen.findByRole("button", { name: "下载脚本" }));
  await userEvent.click(await screen.findByRole("button", { name: "下载 compose" }));
  await screen.findByText("不能用 compose 启动");
  await userEvent.click(screen.getByRole("button", { name: "下载 slurm" }));
  await waitFor(() => expect(saved).toEqual(["task-1-slurm.tar.gz"]));
  click.mockRestore();
});

import { fireEvent, screen, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, test } from "vitest";
import { task } from "@/test/fixtures";
import { apiUrl, platformHandlers, respondWith } from "@/test/platform";
import { renderAt } from "@/test/render";

const medium = (kind: string, name: string, step: number, path: string) => ({
  attempt: 1,
  rank: 0,
  kind,
  name,
  step,
  path,
  source: "wandb",
  at: "2026-11-28T00:00:00Z",
});

const FILES: Record<string, string> = {
  "media/a/1.png": "first image",
  "media/a/2.png": "second image",
  "media/t.txt": "<b>a sample</b>",
  "media/table.json": JSON.stringify({
    columns: ["id", "text"],
    rows: [
      [1, "one"],
      [2, { deep: true }],
    ],
  }),
  "media/h.json": JSON.stringify({ edges: [0, 1, 2], counts: [4, 8] }),
  "media/bad.json": "not JSON",
};

function logged(...items: ReturnType<typeof medium>[]) {
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/:id/media"), () =>
      respondWith({ items, total: items.length, page: 1, pageSize: 200 }),
    ),
    http.get(apiUrl("/training-tasks/:id/outputs/content"), ({ request }) =>
      HttpResponse.text(FILES[new URL(request.url).searchParams.get("path") ?? ""]),
    ),
  );
}

test("a file that is too large to show is named as such, and can be downloaded", async () => {
  logged(medium("image", "samples", 10, "media/huge.png"));
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/:id/outputs/content"), () => HttpResponse.arrayBuffer(new ArrayBuffer(3 << 20))),
  );
  renderAt("/training/task-1");
  await screen.findByText("文件太大，无法显示，可以下载。");
  expect(screen.getByRole("link", { name: "下载 samples" })).toBeTruthy();
});

test("images are shown at the newest step, and each step by the slider", async () => {
  logged(medium("image", "samples", 10, "media/a/1.png"), medium("image", "samples", 20, "media/a/2.png"));
  renderAt("/training/task-1");
  const image = await screen.findByRole("img", { name: "samples, 第 20 步" });
  expect(atob(image.getAttribute("src")?.split(",")[1] ?? "")).toBe("second image");
  const slider = screen.getByRole("slider", { name: "samples 的步数" });
  expect(slider.getAttribute("aria-valuetext")).toBe("第 20 步");
  fireEvent.change(slider, { target: { value: "0" } });
  const first = await screen.findByRole("img", { name: "samples, 第 10 步" });
  expect(atob(first.getAttribute("src")?.split(",")[1] ?? "")).toBe("first image");
});

test("texts, tables and histograms are shown as text and bars, whatever is in them", async () => {
  logged(
    medium("text", "sample", 1, "media/t.txt"),
    medium("table", "answers", 1, "media/table.json"),
    medium("histogram", "weights", 1, "media/h.json"),
    medium("table", "broken", 1, "media/bad.json"),
  );
  renderAt("/training/task-1");
  expect(await screen.findByText("<b>a sample</b>")).toBeTruthy();
  const table = within(await screen.findByRole("group", { name: "answers, 第 1 步" }));
  expect(table.getAllByRole("cell").map(({ textContent }) => textContent)).toEqual(["1", "one", "2", '{"deep":true}']);
  const bars = await screen.findByRole("img", { name: "weights, 第 1 步" });
  expect([...bars.querySelectorAll("rect")].map((bar) => Number(bar.getAttribute("height")))).toEqual([60, 120]);
  expect(await screen.findByText("无法读取该文件。")).toBeTruthy();
});

test("a few names are shown at first, and many can be searched", async () => {
  logged(...Array.from({ length: 9 }, (_, at) => medium("text", `sample ${at}`, 1, "media/t.txt")));
  renderAt("/training/task-1");
  await screen.findByText("sample 5");
  expect(screen.queryByText("sample 6")).toBeNull();
  await userEvent.type(screen.getByRole("searchbox", { name: "按名称查找" }), "8");
  expect(screen.getByText("sample 8")).toBeTruthy();
  await userEvent.clear(screen.getByRole("searchbox", { name: "按名称查找" }));
  await userEvent.click(screen.getByRole("button", { name: "再显示 3 项" }));
  expect(screen.getByText("sample 7")).toBeTruthy();
});

test("parameters are searched, and each is a filter of the list", async () => {
  const parameters = Array.from({ length: 14 }, (_, at) => ({
    name: `optimizer.p${at}`,
    value: `${at / 10}`,
    number: at / 10,
    source: at ? "wandb" : "request",
  }));
  platformHandlers.use(http.get(apiUrl("/training-tasks/task-1"), () => respondWith({ ...task, parameters })));
  renderAt("/training/task-1");
  const card = within((await screen.findByRole("heading", { name: "参数（14）" })).closest("section") as HTMLElement);
  expect(card.getByText("来自 W&B")).toBeTruthy();
  expect(card.queryByText("optimizer.p13")).toBeNull();
  await userEvent.type(card.getByRole("searchbox", { name: "查找参数" }), "p13");
  expect(card.getByRole("link", { name: "1.3" }).getAttribute("href")).toBe("/training?parameter=optimizer.p13%3D1.3");
  await userEvent.clear(card.getByRole("searchbox"));
  await userEvent.click(card.getByRole("button", { name: "再显示 2 项" }));
  expect(card.getByText("optimizer.p13")).toBeTruthy();
});

test("checkpoints name where they are from, the newest and the best", async () => {
  const one = { attempt: 1, sizeBytes: 1024, valLoss: null, at: "2026-11-28T00:00:00Z", complete: true, note: "" };
  const items = [
    { ...one, step: 20, path: "/o/checkpoint-20", source: "runner", layout: "transformers", newest: true, best: false },
    { ...one, step: 10, path: "/o/ten.pt", source: "script", layout: "", newest: false, best: true },
    {
      ...one,
      step: 5,
      path: "/o/step-5",
      source: "runner",
      layout: "dcp",
      newest: false,
      best: false,
      complete: false,
      note: "2 of 4 parts",
    },
  ];
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/:id/checkpoints"), () => respondWith({ items, total: 2, page: 1, pageSize: 100 })),
  );
  renderAt("/training/task-1?tab=checkpoints");
  expect((await screen.findByText("自动发现（transformers）")).closest("tr")?.textContent).toContain("20最新");
  expect(screen.getByText("脚本报告").closest("tr")?.textContent).toContain("10最好");
  const incomplete = screen.getByText("2 of 4 parts").closest("tr");
  expect(incomplete?.textContent).toContain("5不完整");
  expect(incomplete?.querySelector("a")).toBeNull();
});

import { act, screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { beforeEach, expect, test, vi } from "vitest";
import type { Task } from "@/api/types";
import { FakeEventSource } from "@/test/event-source";
import { task } from "@/test/fixtures";
import { apiUrl, respondWith, platformHandlers, respondWithError } from "@/test/platform";
import { renderAt } from "@/test/render";

const at = (second: number) => `2026-11-21T05:00:${String(second).padStart(2, "0")}Z`;

/** Of each rank; the second fails. */
const LOGS = [
  [
    { offset: 0, text: "INFO begin", level: "info", time: at(1) },
    { offset: 11, text: "WARNING slow disk", level: "warning", time: at(2) },
    { offset: 29, text: "loss=3.25", time: at(3) },
  ],
  [
    { offset: 0, text: "INFO begin", level: "info", time: at(1) },
    { offset: 11, text: "ERROR no such file", level: "error", time: at(4) },
    { offset: 30, text: "  at load.py:12", level: "error", time: at(4) },
  ],
];
const FOUND = { attempt: 1, found: { rank: 1, ...LOGS[1]?.[1] }, complete: true, windowBytes: 2 ** 24, ranksUnread: 0 };

let asked: URLSearchParams[];

/** Answers as the platform does, so far as these tests look. */
function answer(query: URLSearchParams) {
  const rank = query.get("rank") ?? "0";
  const levels = query.get("level") === "error" ? ["error"] : ["error", "warning"];
  const since = query.get("since");
  const ranks = rank === "all" ? [0, 1] : [Number(rank)];
  const lines = ranks.flatMap((each) =>
    (LOGS[each] ?? [])
      .filter(({ text }) => query.get("regex") !== "true" || new RegExp(query.get("search") ?? "", "i").test(text))
      .filter((line) => !query.get("level") || levels.includes("level" in line ? (line.level ?? "") : ""))
      .filter(({ time }) => !since || Date.parse(time) >= Date.parse(since))
      .map((line) => ({ ...line, ...(rank === "all" && { rank: each }) })),
  );
  const limit = Number(query.get("limit"));
  return { rank, attempt: 1, lines: lines.slice(0, limit), cursor: "1@0:99", end: true };
}

beforeEach(() => {
  asked = [];
  localStorage.removeItem("fermi.logs.times");
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/:id/logs"), ({ request }) => {
      const query = new URL(request.url).searchParams;
      asked.push(query);
      return respondWith(answer(query));
    }),
    http.get(apiUrl("/training-tasks/:id/logs/first-error"), () => respondWith(FOUND)),
  );
});

const rows = (within_: HTMLElement = document.body) =>
  [...within_.querySelectorAll(".whitespace-pre > span:last-child")].map(({ textContent }) => textContent);
const row = (text: string) => {
  const found = [...document.querySelectorAll<HTMLElement>(".whitespace-pre")].find((each) =>
    each.textContent.includes(text),
  );
  if (!found) throw new Error(`no row says ${text}`);
  return found;
};
const opened = async (over: Partial<Task> = {}) => {
  platformHandlers.use(http.get(apiUrl("/training-tasks/task-1"), () => respondWith({ ...task, ...over })));
  renderAt("/training/task-1");
  await screen.findByText("3 行");
};
const search = () => screen.getByLabelText("在日志中查找");

test("a plain text is found without asking, and all of it is marked", async () => {
  await opened();
  await userEvent.type(search(), "BEGIN");
  await screen.findByText("1 行匹配");
  expect(document.querySelector("mark")?.textContent).toBe("begin");
  expect(asked.filter((query) => query.get("search"))).toEqual([]); // what follows the log may ask meanwhile
});

test("colours are shown, and a search sees the text alone", async () => {
  const red = "\u001b[31m";
  LOGS[0]?.push({
    offset: 39,
    text: `${red}bad\u001b[0m loss \u001b]52;c;QQ==\u0007\u001b[1;38;5;208mhot\u001b[m`,
    time: at(5),
  });
  try {
    renderAt("/training/task-1");
    platformHandlers.use(http.get(apiUrl("/training-tasks/task-1"), () => respondWith(task)));
    await screen.findByText("4 行");
    expect(rows().at(-1)).toBe("bad loss hot");
    const run = screen.getByText("bad");
    expect([run.className, run.style.getPropertyValue("--printed")]).toEqual(["printed-colour", "rgb(187, 0, 0)"]);
    expect(screen.getByText("hot").className).toBe("printed-colour font-bold");
    await userEvent.type(search(), "d loss h");
    await screen.findByText("1 行匹配");
    expect(document.querySelector("mark")?.textContent).toBe("d loss h");
    expect(screen.getByText("ba").className).toBe("printed-colour");
    expect(screen.getByText("ot").className).toBe("printed-colour font-bold");
  } finally {
    LOGS[0]?.pop();
  }
});

test("a regular expression is answered by the platform", async () => {
  await opened();
  await userEvent.click(screen.getByRole("button", { name: "正则表达式" }));
  await userEvent.type(search(), "loss=\\d+|slow");
  await screen.findByText("2 行匹配");
  expect(rows()).toEqual(["WARNING slow disk", "loss=3.25"]);
  const last = asked.findLast((query) => query.get("search")); // what follows the log may ask meanwhile
  expect([last?.get("regex"), last?.get("search")]).toEqual(["true", "loss=\\d+|slow"]);
});

test("an expression that cannot be read is said so where it is typed", async () => {
  await opened();
  const message = "正则表达式有误：missing )";
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/:id/logs"), () =>
      respondWithError(400, "REGEX_INVALID", "x", [{ field: "search", code: "REGEX_INVALID", message }]),
    ),
  );
  await userEvent.click(screen.getByRole("button", { name: "正则表达式" }));
  await userEvent.type(search(), "(");
  await screen.findByText(message);
  expect(search().getAttribute("aria-invalid")).toBe("true");
  expect(screen.getByText("无法识别这个表达式。")).toBeTruthy();
  expect(screen.queryByRole("button", { name: "重试" })).toBeNull();
});

test("a filter asks page after page, by the cursor, until the end, and shows what is there already", async () => {
  await opened();
  const cursors: (string | null)[] = [];
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/:id/logs"), async ({ request }) => {
      const cursor = new URL(request.url).searchParams.get("cursor");
      cursors.push(cursor);
      if (cursor === null)
        return respondWith({ rank: "0", attempt: 1, lines: [{ offset: 5, text: "one" }], cursor: "a", end: false });
      if (cursor === "a") return respondWith({ rank: "0", attempt: 1, lines: [], cursor: "b", end: false });
      await held;
      return respondWith({ rank: "0", attempt: 1, lines: [{ offset: 9, text: "two" }], cursor: "c", end: true });
    }),
  );
  await userEvent.selectOptions(screen.getByLabelText("级别"), "error");
  await screen.findByText("1 行匹配 · 正在查找…");
  release();
  await screen.findByText("2 行匹配");
  expect(cursors.slice(0, 3)).toEqual([null, "a", "b"]);
});

test("while a task runs, what is new to a filter is asked for by the cursor", async () => {
  await opened();
  vi.useFakeTimers({ shouldAdvanceTime: true });
  try {
    await userEvent
      .setup({ advanceTimers: (ms) => vi.advanceTimersByTime(ms) })
      .selectOptions(screen.getByLabelText("级别"), "warning");
    await screen.findByText("1 行匹配");
    const before = asked.length;
    await act(() => vi.advanceTimersByTimeAsync(2_100));
    expect(asked.length).toBeGreaterThan(before);
    expect(asked.at(-1)?.get("cursor")).toBe("1@0:99");
  } finally {
    vi.useRealTimers();
  }
});

test("lines say their level by a letter, not by colour alone; times stand beside them on demand, and that is remembered", async () => {
  await opened();
  expect(within(row("slow disk")).getByTitle("警告").textContent).toBe("W");
  expect(row("loss=").querySelector("abbr")).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "时间" }));
  expect(row("loss=").textContent).toBe("loss=3.25");
  await userEvent.click(screen.getByRole("checkbox", { name: "在行前显示时间" }));
  expect(row("loss=").textContent).toMatch(/^\d\d:\d\d:03loss/);
  expect(localStorage.getItem("fermi.logs.times")).toBe("on");
});

test.each([
  ["button", () => userEvent.click(screen.getByRole("button", { name: "第一个错误" }))],
  ["key", () => userEvent.keyboard("e")],
])("the first error is gone to by its %s, whichever rank's it is", async (_, go) => {
  await opened();
  await go();
  await waitFor(() => expect(row("no such file").getAttribute("aria-current")).toBe("true"));
  expect(screen.getByLabelText<HTMLSelectElement>("进程").value).toBe("1");
  expect(FakeEventSource.opened.at(-1)?.url).toContain("logs=1");
});

test.each([
  [true, "没有 rank 输出过错误。"],
  [false, /每份日志开头和末尾的 16 MiB 中没有错误/],
])("that there is no error is said, and whether all was looked through: %s", async (complete, said) => {
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/:id/logs/first-error"), () => respondWith({ ...FOUND, found: null, complete })),
  );
  await opened();
  await userEvent.click(screen.getByRole("button", { name: "第一个错误" }));
  await screen.findByText(said);
});

test("the shortcut is in the list of shortcuts", async () => {
  await opened();
  await userEvent.keyboard("?");
  const list = within(await screen.findByRole("dialog"));
  expect(list.getByText("第一个错误").closest("div")?.textContent).toBe("第一个错误e");
});

test("a line that was found is shown among all others", async () => {
  await opened();
  await userEvent.type(search(), "slow");
  await screen.findByText("1 行匹配");
  await userEvent.click(screen.getByText("WARNING", { exact: false, selector: ".whitespace-pre span" }));
  await screen.findByText("3 行");
  expect(row("slow disk").getAttribute("aria-current")).toBe("true");
  expect((search() as HTMLInputElement).value).toBe("");
});

test("lines that were found are reached by the keyboard", async () => {
  await opened();
  await userEvent.selectOptions(screen.getByLabelText("级别"), "warning");
  await screen.findByText("1 行匹配");
  act(() => screen.getByRole("group", { name: "训练日志" }).focus());
  await userEvent.keyboard("{Enter}");
  expect(document.activeElement).toBe(screen.getByRole("button", { name: /^在全部日志中显示：WARNING slow/ }));
  await userEvent.keyboard("{Enter}");
  await screen.findByText("3 行");
});

test("of a log that is not kept whole, the lines around one are read from there", async () => {
  const page = (lines: object[], end: boolean, cursor = "1@0:9") =>
    respondWith({ rank: "0", attempt: 1, lines, cursor, end });
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/:id/logs"), ({ request }) => {
      const query = new URL(request.url).searchParams;
      asked.push(query);
      if (query.get("level")) return page([{ offset: 1_000_000, text: "ERROR long ago", level: "error" }], true);
      const from = /:(\d+)$/.exec(query.get("cursor") ?? "")?.[1];
      if (from === String(1_000_000 - 2 ** 18)) {
        const around = [
          { offset: 1_000_000 - 2 ** 18, text: "half a line" },
          { offset: 999_990, text: "before it" },
        ];
        return page([...around, { offset: 1_000_000, text: "ERROR long ago", level: "error" }], true);
      }
      if (query.get("tail") === "true") return page([{ offset: 9_000_000, text: "newest" }], true);
      return page([{ offset: asked.length, text: "x" }], false, `1@0:${asked.length}`);
    }),
  );
  renderAt("/training/task-1");
  await screen.findByText(/这里只保留最新的/);
  await userEvent.selectOptions(screen.getByLabelText("级别"), "error");
  await userEvent.click(await screen.findByText("ERROR long ago", { selector: ".whitespace-pre span" }));
  await screen.findByText(/比这里保留的行更早/);
  await waitFor(() => expect(rows()).toEqual(expect.arrayContaining(["before it", "ERROR long ago"])));
  expect(rows()).not.toContain("half a line");
  await userEvent.click(screen.getByRole("button", { name: "回到最新的行" }));
  await waitFor(() => expect(rows()).toEqual(["newest"]));
});

test("a progress bar stands below the lines, as it is now, is searched as it is shown, and ends as a line", async () => {
  await opened({ status: "running", endedAt: null });
  const send = (...lines: object[]) =>
    act(() => {
      FakeEventSource.opened.at(-1)?.send("log", { rank: 0, attempt: 1, lines });
    });
  send({ offset: 40, text: " 1%|#", open: true });
  await waitFor(() => expect(rows().at(-1)).toBe(" 1%|#"));
  send({ offset: 50, text: " 2%|##", open: true });
  await waitFor(() => expect(rows().slice(2)).toEqual(["loss=3.25", " 2%|##"]));
  await userEvent.type(search(), "2%");
  await screen.findByText("1 行匹配");
  expect(rows()).toEqual([" 2%|##"]);
  await userEvent.clear(search());
  send({ offset: 90, text: "100%|##########" }, { offset: 120, text: "end" });
  await waitFor(() => expect(rows().slice(2)).toEqual(["loss=3.25", "100%|##########", "end"]));
});

test("a time is gone to in the whole log", async () => {
  await opened();
  await userEvent.click(screen.getByRole("button", { name: "时间" }));
  const moment = screen.getByLabelText<HTMLInputElement>("跳到");
  expect(new Date(moment.value).toISOString()).toBe("2026-11-21T05:00:00.000Z");
  await userEvent.clear(moment);
  const local = new Date(at(2));
  const two = (value: number) => String(value).padStart(2, "0");
  await userEvent.type(
    moment,
    `2026-11-21T${two(local.getHours())}:${two(local.getMinutes())}:${two(local.getSeconds())}`,
  );
  await userEvent.click(screen.getByRole("button", { name: "前往" }));
  await waitFor(() => expect(row("slow disk").getAttribute("aria-current")).toBe("true"));
});

test("logs stand side by side, each of its own rank; the search is theirs together, and one can be closed", async () => {
  await opened();
  await userEvent.click(screen.getByRole("button", { name: "并排查看" }));
  const second = await screen.findByRole("region", { name: "rank 1" });
  await waitFor(() => expect(rows(second)).toContain("ERROR no such file"));
  const first = screen.getByRole("region", { name: "rank 0" });
  expect(rows(first)).toContain("loss=3.25");
  await userEvent.type(search(), "begin");
  await waitFor(() => expect([rows(first), rows(second)]).toEqual([["INFO begin"], ["INFO begin"]]));
  await userEvent.clear(search());
  await userEvent.click(within(first).getByRole("button", { name: "关闭 rank 0 的日志" }));
  expect(screen.queryByRole("region", { name: "rank 0" })).toBeNull();
  await waitFor(() => expect(FakeEventSource.opened.at(-1)?.url).toContain("logs=1"));
});

test("no more than four logs stand side by side", async () => {
  await opened();
  const add = screen.getByRole<HTMLButtonElement>("button", { name: "并排查看" });
  for (let more = 0; more < 3; more++) await userEvent.click(add);
  expect(screen.getAllByRole("group", { name: "训练日志" })).toHaveLength(4);
  expect(add.disabled).toBe(true);
});

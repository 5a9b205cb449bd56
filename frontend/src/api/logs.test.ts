import { QueryClient } from "@tanstack/react-query";
import { http } from "msw";
import { expect, test } from "vitest";
import { metric } from "@/test/fixtures";
import { apiUrl, respondWith, platformHandlers } from "@/test/platform";
import {
  appendLogPage,
  MAX_LOG_LINES,
  type Log,
  logQuery,
  getOverwrittenText,
  parseLogLine,
  EMPTY_LOG,
  MAX_LOG_CHARACTERS,
  appendOpenLines,
} from "./logs";
import { mergeById, metricsQuery } from "./tasks";

test("newer points are appended, and points that are known already are not doubled", () => {
  const have = [metric(1, 1, 3), metric(2, 2, 2)];
  expect(mergeById(have, [])).toBe(have);
  expect(mergeById(have, [metric(3, 3, 1)]).map((point) => point.id)).toEqual([1, 2, 3]);
  expect(mergeById([metric(1, 1, 3), metric(3, 3, 1)], [metric(2, 2, 2), metric(3, 3, 1)]).map(({ id }) => id)).toEqual(
    [1, 2, 3],
  );
});

test("metrics are read page after page, and later only what is new is asked for", async () => {
  const asked: (string | null)[] = [];
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-1/metrics"), ({ request }) => {
      const after = new URL(request.url).searchParams.get("after");
      asked.push(after);
      if (after === null) return respondWith({ items: [metric(1, 1, 3)], next: 1 });
      return respondWith({ items: after === "1" ? [metric(2, 2, 2)] : [], next: null });
    }),
  );
  const client = new QueryClient();
  await client.query(metricsQuery("task-1"));
  const points = await client.query(metricsQuery("task-1"));
  expect(points.map((point) => point.id)).toEqual([1, 2]);
  expect(asked).toEqual([null, "1", "2"]);
});

const line = (rank: number, offset: number) => ({ rank, offset, text: `${rank}:${offset}` });

test("a log line is taken once, rank by rank", () => {
  const first = appendLogPage(EMPTY_LOG, [line(0, 0), line(1, 0), line(0, 10)]);
  const again = appendLogPage(first, [line(0, 10), line(1, 7)]);
  expect(again.lines.map(({ text }) => text)).toEqual(["0:0", "1:0", "0:10", "1:7"]);
  expect(appendLogPage(again, [line(0, 0)])).toBe(again);
});

test("a line that is open is replaced by the next of its rank, and what is older changes nothing", () => {
  const bar = (rank: number, offset: number, open = true) => ({ rank, offset, text: `${offset}%`, open });
  const shown = (log: Log) => appendOpenLines(log).map(({ rank, text }) => `${rank}:${text}`);
  const first = appendLogPage(EMPTY_LOG, [line(0, 0), bar(1, 5), bar(0, 10)]);
  expect(shown(first)).toEqual(["0:0:0", "0:10%", "1:5%"]);
  const grown = appendLogPage(first, [bar(0, 20), bar(0, 10)]);
  expect(shown(grown)).toEqual(["0:0:0", "0:20%", "1:5%"]);
  const ended = appendLogPage(grown, [bar(0, 30, false), line(1, 0), bar(0, 20)]);
  expect(shown(ended)).toEqual(["0:0:0", "0:30%", "1:1:0", "1:5%"]);
  expect(appendLogPage(ended, [bar(0, 30)])).toBe(ended);
  expect(shown(appendLogPage(ended, [{ ...bar(1, 9), text: "" }]))).toEqual(["0:0:0", "0:30%", "1:1:0"]);
});

test("bars one below the other are a line each, rank by rank, searched and coloured on their own", () => {
  const red = "\u001b[31m";
  const log = appendLogPage(EMPTY_LOG, [
    parseLogLine(1, { offset: 9, text: `epochs 1\nsteps ${red}3`, open: true }),
    parseLogLine(0, { offset: 5, text: "epochs 2\nsteps 4", open: true }),
  ]);
  expect(appendOpenLines(log).map(({ rank, text, printed }) => [rank, text, printed])).toEqual([
    [0, "epochs 2", undefined],
    [0, "steps 4", undefined],
    [1, "epochs 1", "epochs 1"],
    [1, "steps 3", `steps ${red}3`],
  ]);
  expect(appendOpenLines(log, [], "steps").map(({ text }) => text)).toEqual(["steps 4", "steps 3"]);
});

test("of text that was printed over, the newest state is left", () => {
  const lines = ["\r 1%\r 2%", "10%\r20%\r", "of Windows\r", "plain", "\r"];
  expect(lines.map(getOverwrittenText)).toEqual([" 2%", "20%", "of Windows", "plain", ""]);
});

test("a log is read to its end by the cursor it is given", async () => {
  const pages = [
    { lines: [{ offset: 0, text: "a" }], cursor: "one", end: false },
    { lines: [{ offset: 2, text: "b" }], cursor: "two", end: true },
  ];
  const asked: (string | null)[] = [];
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-1/logs"), ({ request }) => {
      asked.push(new URL(request.url).searchParams.get("cursor"));
      return respondWith({ rank: 0, attempt: 1, ...pages[asked.length - 1] });
    }),
  );
  const log = await new QueryClient().query(logQuery("task-1", 1, 0));
  expect(asked).toEqual([null, "one"]);
  expect(log.cursor).toBe("two");
  expect(log.lines).toEqual([
    { rank: 0, offset: 0, text: "a" },
    { rank: 0, offset: 2, text: "b" },
  ]);
});

test("a page without lines is not the end of a log: a bar of megabytes was printed over", async () => {
  const pages = [
    { lines: [], cursor: "one", end: false },
    { lines: [{ offset: 20_000_000, text: "100%" }], cursor: "two", end: true },
  ];
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-1/logs"), () => respondWith({ rank: 0, attempt: 1, ...pages.shift() })),
  );
  const log = await new QueryClient().query(logQuery("task-1", 1, 0));
  expect(log.lines.map(({ text }) => text)).toEqual(["100%"]);
});

test("a page holds no more lines and no more text than it can bear, and says so", () => {
  const many = Array.from({ length: MAX_LOG_LINES + 10 }, (_, offset) => ({ rank: 0, offset, text: "x" }));
  const long = appendLogPage(EMPTY_LOG, many);
  expect([long.lines.length, long.size, long.cut]).toEqual([MAX_LOG_LINES, MAX_LOG_LINES, true]);
  expect(long.lines.at(-1)?.offset).toBe(MAX_LOG_LINES + 9);
  const text = "x".repeat(MAX_LOG_CHARACTERS / 2);
  const wide = appendLogPage(
    EMPTY_LOG,
    [0, 1, 2].map((offset) => ({ rank: 0, offset, text })),
  );
  expect([wide.lines.length, wide.size, wide.cut]).toEqual([2, MAX_LOG_CHARACTERS, true]);
});

test("of a log without end only what can be kept is read, then its last page", async () => {
  const asked: string[] = [];
  platformHandlers.use(
    http.get(apiUrl("/training-tasks/task-1/logs"), ({ request }) => {
      const { searchParams } = new URL(request.url);
      asked.push(searchParams.get("tail") === "true" ? "tail" : (searchParams.get("cursor") ?? "start"));
      const offset = asked.length;
      const end = asked.at(-1) === "tail";
      return respondWith({ rank: 0, attempt: 1, lines: [{ offset, text: "x" }], cursor: String(offset), end });
    }),
  );
  const log = await new QueryClient().query(logQuery("task-1", 1, 0));
  expect([asked[0], asked.at(-1), asked.length]).toEqual(["start", "tail", 41]);
  expect([log.lines.length, log.cut]).toEqual([1, true]);
});

import { QueryClient } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { FakeEventSource } from "@/test/event-source";
import { metric, task } from "@/test/fixtures";
import { type Log, logKey, EMPTY_LOG } from "./logs";
import { type StreamState, TaskStreamOptions } from "./stream";
import { taskKeys } from "./tasks";
import type { Metric, Task } from "./types";

let client: QueryClient;
let states: StreamState[];
let heardAt: number;
let feed: TaskStreamOptions;

beforeEach(() => {
  vi.useFakeTimers();
  client = new QueryClient();
  client.setQueryData(taskKeys.detail("task-1"), task);
  states = [];
  feed = new TaskStreamOptions(client, "task-1", 0, (state, since) => {
    states.push(state);
    heardAt = since;
  });
  feed.open();
});
afterEach(() => {
  feed.close();
  vi.useRealTimers();
});

const stream = () => {
  const newest = FakeEventSource.opened.at(-1);
  if (!newest) throw new Error("no stream was opened");
  return newest;
};

test("a burst of points becomes one change of the cache", async () => {
  const changes = vi.fn();
  client.getQueryCache().subscribe(({ type, query }) => {
    if (type === "updated" && (query.queryKey as unknown[]).includes("metrics")) changes();
  });
  stream().accept();
  for (let id = 1; id <= 500; id++) stream().send("metric", metric(id, id, 1));
  stream().send("metric", { items: [metric(501, 501, 1), metric(502, 502, 1)] });
  await vi.advanceTimersByTimeAsync(300);
  expect(client.getQueryData<Metric[]>(taskKeys.metrics("task-1"))).toHaveLength(502);
  expect(changes).toHaveBeenCalledTimes(1);
});

test("a status changes the task that is shown, and what the stream does not tell is asked for again", async () => {
  stream().accept();
  stream().send("status", { status: "stopping", allowedActions: ["clone"] });
  await vi.advanceTimersByTimeAsync(300);
  const shown = client.getQueryData<Task>(taskKeys.detail("task-1"));
  expect(shown).toMatchObject({ taskName: "first-task", status: "stopping", allowedActions: ["clone"] });
  expect(client.getQueryState(taskKeys.detail("task-1"))?.isInvalidated).toBe(true);
});

test("while only the step changes, the rest of the task is asked for now and then", async () => {
  const request = vi.fn();
  client.getQueryCache().subscribe((event) => {
    if (
      event.type === "updated" &&
      event.action.type === "invalidate" &&
      (event.query.queryKey as unknown[]).includes("task-1")
    )
      request();
  });
  const say = async (status: Partial<Task>) => {
    request.mockClear();
    stream().send("status", { ...client.getQueryData<Task>(taskKeys.detail("task-1")), ...status });
    client.setQueryData<Task>(taskKeys.detail("task-1"), (known) => known); // it is no longer invalid
    await vi.advanceTimersByTimeAsync(300);
    return request.mock.calls.length > 0;
  };
  stream().accept();
  expect(await say({ status: "stopping" })).toBe(true);
  expect(await say({ step: 11, loss: 2 })).toBe(false);
  expect(await say({ step: 12 })).toBe(false);
  expect(client.getQueryData<Task>(taskKeys.detail("task-1"))).toMatchObject({ step: 12, loss: 2 });
  expect(await say({})).toBe(true);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(await say({ step: 13 })).toBe(true);
});

test("log lines wait while the page is reading the log, so that no line is lost or doubled", async () => {
  const key = logKey("task-1", 1, 0);
  let arrive: (log: Log) => void = () => undefined;
  void client.query({ queryKey: key, queryFn: () => new Promise<Log>((resolve) => (arrive = resolve)) });
  stream().send("log", { rank: 0, attempt: 1, lines: [{ offset: 10, text: "third" }] });
  await vi.advanceTimersByTimeAsync(300);
  expect(client.getQueryData(key)).toBeUndefined();
  const read = [
    { rank: 0, offset: 0, text: "first" },
    { rank: 0, offset: 5, text: "second" },
  ];
  arrive({ ...EMPTY_LOG, lines: read, cursor: "x", newest: { 0: 5 } });
  await vi.advanceTimersByTimeAsync(500);
  expect(client.getQueryData<Log>(key)?.lines.map(({ text }) => text)).toEqual(["first", "second", "third"]);
});

test("a stream that was refused is opened again, later each time", async () => {
  stream().refuse();
  expect(states).toEqual(["connecting"]);
  await vi.advanceTimersByTimeAsync(600);
  expect(FakeEventSource.opened).toHaveLength(2);
  stream().refuse();
  await vi.advanceTimersByTimeAsync(600);
  expect(FakeEventSource.opened).toHaveLength(2);
  await vi.advanceTimersByTimeAsync(600);
  expect(FakeEventSource.opened).toHaveLength(3);
});

test("at the end the stream is closed and stays closed", async () => {
  stream().accept();
  stream().send("status", { status: "succeeded", endedAt: "2026-11-21T06:00:00Z" });
  stream().send("end", {});
  await vi.advanceTimersByTimeAsync(60_000);
  expect(states).toEqual(["live", "ended"]);
  expect(stream().readyState).toBe(FakeEventSource.CLOSED);
  expect(FakeEventSource.opened).toHaveLength(1);
});

test("a stream that gives no sign of life is stale after five seconds, and another is opened later", async () => {
  stream().accept();
  for (let beat = 0; beat < 10; beat++) {
    await vi.advanceTimersByTimeAsync(2_000);
    stream().send("beat", {});
  }
  expect(states).toEqual(["live"]);
  await vi.advanceTimersByTimeAsync(5_000);
  expect(states).toEqual(["live", "stale"]);
  expect(Date.now() - heardAt).toBe(5_000);
  stream().send("beat", {});
  expect(states).toEqual(["live", "stale", "live"]);
  await vi.advanceTimersByTimeAsync(20_000);
  expect(FakeEventSource.opened).toHaveLength(2);
  expect(FakeEventSource.opened[0]?.readyState).toBe(FakeEventSource.CLOSED);
});

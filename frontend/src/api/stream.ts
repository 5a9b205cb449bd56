import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { recordResponse, STALE_MS } from "./connection-status";
import { appendLogPage, parseLogLine, type Log, logKey, logsKey, type RankChoice, type ApiLogLine } from "./logs";
import { mergeById, updateCachedTask, invalidateTask, taskKeys } from "./tasks";
import type { Metric, Task, TaskEvent } from "./types";

export type StreamState = "connecting" | "live" | "stale" | "ended";

const FLUSH_MS = 200;
/** The platform sends a keep-alive every two seconds (apps/training/presenters/event_stream.py). */
const RECONNECT_AFTER_MS = 20_000;
/** A running task reports its step many times a second; everything else about it is refreshed this often. */
const REFRESH_MS = 10_000;
const REOPEN_MS = [500, 1_000, 2_000, 5_000, 15_000];

interface Messages {
  status: Partial<Task>;
  event: TaskEvent;
  metric: Metric | { items: Metric[] };
  log: { rank: number; attempt: number; lines: ApiLogLine[] };
  beat: unknown;
  end: unknown;
}

/**
 * Writes the events of a task's stream into the query cache, a few times a second at most. Queries and the stream
 * overlap, so nothing is missed: a new stream starts with the first event and point, a resumed one continues where it
 * stopped. Of the log it sends only the end, so each time it opens the page reads the log from where it is; lines of
 * the stream wait until that is done.
 */
export class TaskStreamOptions {
  private source: EventSource | undefined;
  private flushTimer: ReturnType<typeof setTimeout> | undefined;
  private openTimer: ReturnType<typeof setTimeout> | undefined;
  private failures = 0;
  private status: Messages["status"] = {};
  private events: TaskEvent[] = [];
  private metrics: Metric[] = [];
  private logs: Messages["log"][] = [];
  private over = false;
  private silent = false;
  private heardAt = Date.now();
  private askedAt = 0;
  private silenceTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly client: QueryClient,
    private readonly id: string,
    private readonly rank: RankChoice,
    private readonly onState: (state: StreamState, since: number) => void,
  ) {}

  open(): void {
    const source = new EventSource(`/api/v1/training-tasks/${this.id}/stream?logs=${this.rank}`);
    this.source = source;
    source.onopen = () => {
      this.failures = 0;
      this.alive();
      this.onState("live", Date.now());
      void this.client.invalidateQueries({ queryKey: logsKey(this.id) });
    };
    source.onerror = () => {
      this.onState("connecting", this.heardAt);
      if (source.readyState === EventSource.CLOSED) this.reopen();
    };
    this.on("status", (status) => Object.assign(this.status, status));
    this.on("event", (event) => this.events.push(event));
    this.on("metric", (data) => this.metrics.push(...("items" in data ? data.items : [data])));
    this.on("log", (lines) => this.logs.push(lines));
    this.on("end", () => (this.over = true));
    this.on("beat", () => undefined);
  }

  close(): void {
    clearTimeout(this.flushTimer);
    clearTimeout(this.openTimer);
    clearTimeout(this.silenceTimer);
    this.source?.close();
  }

  /**
   * Records that something arrived. An open connection says nothing about the other end: after a while without a keep-
   * alive the page is stale, and after a longer while another connection is opened.
   */
  private alive(): void {
    recordResponse();
    this.heardAt = Date.now();
    if (this.silent) this.onState("live", Date.now());
    this.silent = false;
    clearTimeout(this.silenceTimer);
    this.silenceTimer = setTimeout(() => {
      this.silent = true;
      this.onState("stale", this.heardAt);
      this.silenceTimer = setTimeout(() => {
        this.source?.close();
        this.open();
      }, RECONNECT_AFTER_MS - STALE_MS);
    }, STALE_MS);
  }

  /**
   * Opens another connection. The browser reconnects by itself after a lost connection, but not after a response such
   * as 502.
   */
  private reopen(): void {
    const wait = REOPEN_MS[Math.min(this.failures++, REOPEN_MS.length - 1)];
    this.openTimer = setTimeout(() => this.open(), wait);
  }

  private on<Name extends keyof Messages>(name: Name, take: (data: Messages[Name]) => unknown): void {
    this.source?.addEventListener(name, ({ data }: MessageEvent<string>) => {
      this.alive();
      take(JSON.parse(data || "null") as Messages[Name]);
      this.flushSoon();
    });
  }

  private flushSoon(): void {
    this.flushTimer ??= setTimeout(() => {
      this.flushTimer = undefined;
      this.flush();
    }, FLUSH_MS);
  }

  private flush(): void {
    const { client, id, status, events, metrics } = this;
    const known = client.getQueryData<Task>(taskKeys.detail(id));
    const more = hasOtherChanges(known, status) || (status.status && Date.now() - this.askedAt > REFRESH_MS);
    this.status = {};
    this.events = [];
    this.metrics = [];
    updateCachedTask(client, id, status);
    if (events.length) {
      client.setQueryData<TaskEvent[]>(taskKeys.events(id), (have) => mergeById(have ?? [], events));
      void client.invalidateQueries({ queryKey: taskKeys.checkpoints(id) });
    }
    if (events.length || more) {
      this.askedAt = Date.now();
      void client.invalidateQueries({ queryKey: taskKeys.detail(id) });
      void client.invalidateQueries({ queryKey: taskKeys.diagnosis(id) });
    }
    if (metrics.length) client.setQueryData<Metric[]>(taskKeys.metrics(id), (have) => mergeById(have ?? [], metrics));
    this.flushLogs();
    if (this.over && this.logs.length === 0) this.end();
  }

  private flushLogs(): void {
    const messages = this.logs;
    this.logs = [];
    for (const attempt of new Set(messages.map((message) => message.attempt))) {
      const mine = messages.filter((message) => message.attempt === attempt);
      const key = logKey(this.id, attempt, this.rank);
      if (this.client.isFetching({ queryKey: key }) > 0) {
        this.logs.push(...mine);
        this.flushSoon();
      } else {
        const lines = mine.flatMap(({ rank, lines }) => lines.map((line) => parseLogLine(rank, line)));
        this.client.setQueryData<Log>(key, (log) => log && appendLogPage(log, lines));
      }
    }
  }

  private end(): void {
    this.close();
    this.onState("ended", Date.now());
    void invalidateTask(this.client, this.id);
  }
}

const PROGRESS: readonly string[] = ["step", "totalSteps", "estimatedEndAt", "loss"];

/** Returns whether a status tells more than a new step. One without changes means that the state of ranks changed. */
function hasOtherChanges(known: Task | undefined, status: Partial<Task>): boolean {
  const names = Object.keys(status) as (keyof Task)[];
  if (!known || names.length === 0) return names.length > 0;
  const changed = names.filter((name) => JSON.stringify(status[name]) !== JSON.stringify(known[name]));
  return changed.length === 0 || changed.some((name) => !PROGRESS.includes(name));
}

/** `since`: when the last event arrived, in milliseconds. */
export interface TaskStream {
  state: StreamState;
  since: number;
}

/**
 * Keeps one stream open while a task is active. `rank` selects the log that it sends. A new language opens a new
 * stream.
 */
export function useTaskStream(id: string, rank: RankChoice, over: boolean): TaskStream {
  const client = useQueryClient();
  const { language } = useTranslation().i18n;
  const [overAtFirst] = useState(over);
  const [feed, setFeed] = useState<TaskStream>({ state: overAtFirst ? "ended" : "connecting", since: 0 });
  useEffect(() => {
    if (overAtFirst) return;
    const source = new TaskStreamOptions(client, id, rank, (state, since) => setFeed({ state, since }));
    source.open();
    return () => source.close();
  }, [client, id, rank, language, overAtFirst]);
  return feed;
}

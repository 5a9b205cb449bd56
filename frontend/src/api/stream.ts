import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { recordResponse, STALE_MS } from "./connection-status";
import { appendLogPage, parseLogLine, type Log, logKey, logsKey, type RankChoice, type ApiLogLine } from "./logs";
import { mergeById, updateCachedTask, invalidateTask, taskKeys } from "./tasks";
import type { Metric, Task, TaskEvent } from "./types";

export type StreamState = "connecting" | "live" | "stale" | "ended";

const FLUSH_MS = 200;
/** The platform gives a sign of life every two seconds (apps/training/presenters/event_stream.py). */
const RECONNECT_AFTER_MS = 20_000;
/** A task that trains says its step many times a second; what else is known of it is asked for this often meanwhile. */
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
 * One task's event stream, poured into the query cache a few times a second, however fast it comes.
 *
 * What the page asks for itself and what the stream brings overlap, and leave no hole. A new stream tells all events
 * and points from the first, and one that was cut goes on where it was; of a log it brings the end only, so each time
 * it opens the page reads on from where it is itself, and log lines wait while that goes on.
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

  /** Something came. A connection that stays open says nothing about the other end: after a while without a sign of life
   * what is shown is old, and after a longer one another connection is tried. */
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

  /** The browser itself only comes back after a lost connection, not after an answer such as 502. */
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

const PROGRESS: readonly string[] = ["step", "loss"];

/** Whether it is more than another step: a status without any change of its own says that something was seen of ranks. */
function hasOtherChanges(known: Task | undefined, status: Partial<Task>): boolean {
  const names = Object.keys(status) as (keyof Task)[];
  if (!known || names.length === 0) return names.length > 0;
  const changed = names.filter((name) => JSON.stringify(status[name]) !== JSON.stringify(known[name]));
  return changed.length === 0 || changed.some((name) => !PROGRESS.includes(name));
}

/** `since`: when the stream last said something. */
export interface TaskStream {
  state: StreamState;
  since: number;
}

/** Keeps the page's one stream open while the task lives. `rank` chooses whose log comes with it; a new language, a new
 * stream. */
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

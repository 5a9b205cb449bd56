import { useEffect, useMemo, useState } from "react";
import { compileExpression, type MatchSpan } from "./matches";

export interface MatchRequest {
  id: number;
  text: string;
  expression: RegExp;
}

export interface MatchResponse {
  id: number;
  spans: MatchSpan[];
}

type MatchWorker = Pick<Worker, "postMessage" | "terminate" | "onmessage">;

/** The most time for one line. After it the worker is ended and nothing is marked. */
export const TIMEOUT_MS = 2_000;

const startWorker = (): MatchWorker => new Worker(new URL("./match.worker.ts", import.meta.url), { type: "module" });

/** Finds an expression in lines in a web worker, as some expressions take exponential time. */
export class MatchFinder {
  private hand: MatchWorker | undefined;
  private readonly waiting = new Map<number, (spans: MatchSpan[]) => void>();
  private patience: ReturnType<typeof setTimeout> | undefined;
  private asked = 0;
  private hopeless = false;

  constructor(
    private readonly expression: RegExp,
    private readonly begin: () => MatchWorker = startWorker,
  ) {}

  /** `take` is called later, or never. */
  ask(text: string, take: (spans: MatchSpan[]) => void): () => void {
    if (this.hopeless) return () => undefined;
    const id = this.asked++;
    this.waiting.set(id, take);
    this.hand ??= this.started();
    this.patience ??= setTimeout(() => this.giveUp(), TIMEOUT_MS);
    this.hand.postMessage({ id, text, expression: this.expression } satisfies MatchRequest);
    return () => void this.waiting.delete(id);
  }

  close(): void {
    clearTimeout(this.patience);
    this.patience = undefined;
    this.waiting.clear();
    this.hand?.terminate();
    this.hand = undefined;
  }

  private started(): MatchWorker {
    const hand = this.begin();
    hand.onmessage = ({ data: { id, spans } }: MessageEvent<MatchResponse>) => {
      clearTimeout(this.patience);
      this.waiting.get(id)?.(spans);
      this.waiting.delete(id);
      this.patience = this.waiting.size > 0 ? setTimeout(() => this.giveUp(), TIMEOUT_MS) : undefined;
    };
    return hand;
  }

  private giveUp(): void {
    this.hopeless = true;
    this.close();
  }
}

/** Returns undefined if the search is no expression. */
export function useMatchFinder(search: string): MatchFinder | undefined {
  const marker = useMemo(() => {
    const expression = search && "Worker" in globalThis ? compileExpression(search) : undefined;
    return expression && new MatchFinder(expression);
  }, [search]);
  useEffect(() => () => marker?.close(), [marker]);
  return marker;
}

/** Returns the matches in a line; empty until they are found. */
export function useMatches(marker: MatchFinder, text: string): MatchSpan[] | undefined {
  const [answer, setAnswer] = useState<{ text: string; marker: MatchFinder; spans: MatchSpan[] }>();
  useEffect(() => marker.ask(text, (spans) => setAnswer({ text, marker, spans })), [marker, text]);
  return answer?.text === text && answer.marker === marker ? answer.spans : undefined;
}

import { useEffect, useMemo, useState } from "react";
import { expressionOf, type Span } from "./spans";

export interface Asked {
  id: number;
  text: string;
  expression: RegExp;
}

export interface Answered {
  id: number;
  spans: Span[];
}

type Hand = Pick<Worker, "postMessage" | "terminate" | "onmessage">;

/** An expression that takes longer for a line is given up: nothing is marked, and nothing else has waited for it. */
export const PATIENCE_MS = 2_000;

const hire = (): Hand => new Worker(new URL("./marks.worker.ts", import.meta.url), { type: "module" });

/** Finds an expression in lines, in a thread of its own: some expressions take years for some lines. */
export class Marker {
  private hand: Hand | undefined;
  private readonly waiting = new Map<number, (spans: Span[]) => void>();
  private patience: ReturnType<typeof setTimeout> | undefined;
  private asked = 0;
  private hopeless = false;

  constructor(
    private readonly expression: RegExp,
    private readonly begin: () => Hand = hire,
  ) {}

  /** `take` is told later, or never. */
  ask(text: string, take: (spans: Span[]) => void): () => void {
    if (this.hopeless) return () => undefined;
    const id = this.asked++;
    this.waiting.set(id, take);
    this.hand ??= this.started();
    this.patience ??= setTimeout(() => this.giveUp(), PATIENCE_MS);
    this.hand.postMessage({ id, text, expression: this.expression } satisfies Asked);
    return () => void this.waiting.delete(id);
  }

  close(): void {
    clearTimeout(this.patience);
    this.patience = undefined;
    this.waiting.clear();
    this.hand?.terminate();
    this.hand = undefined;
  }

  private started(): Hand {
    const hand = this.begin();
    hand.onmessage = ({ data: { id, spans } }: MessageEvent<Answered>) => {
      clearTimeout(this.patience);
      this.waiting.get(id)?.(spans);
      this.waiting.delete(id);
      this.patience = this.waiting.size > 0 ? setTimeout(() => this.giveUp(), PATIENCE_MS) : undefined;
    };
    return hand;
  }

  private giveUp(): void {
    this.hopeless = true;
    this.close();
  }
}

/** None where nothing is to be marked by an expression. */
export function useMarker(search: string): Marker | undefined {
  const marker = useMemo(() => {
    const expression = search && "Worker" in globalThis ? expressionOf(search) : undefined;
    return expression && new Marker(expression);
  }, [search]);
  useEffect(() => () => marker?.close(), [marker]);
  return marker;
}

/** Nothing until the answer is there. */
export function useSpans(marker: Marker, text: string): Span[] | undefined {
  const [answer, setAnswer] = useState<{ text: string; marker: Marker; spans: Span[] }>();
  useEffect(() => marker.ask(text, (spans) => setAnswer({ text, marker, spans })), [marker, text]);
  return answer?.text === text && answer.marker === marker ? answer.spans : undefined;
}

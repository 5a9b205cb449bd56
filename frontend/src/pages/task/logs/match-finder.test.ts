import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type MatchResponse, type MatchRequest, MatchFinder, TIMEOUT_MS } from "./match-finder";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

class Hand {
  onmessage: ((event: MessageEvent<MatchResponse>) => void) | null = null;
  readonly asked: MatchRequest[] = [];
  readonly terminate = vi.fn();

  postMessage(asked: MatchRequest): void {
    this.asked.push(asked);
  }

  answer({ id, text }: MatchRequest): void {
    this.onmessage?.(new MessageEvent("message", { data: { id, spans: [[0, text.length]] } }));
  }
}

const begun = () => {
  const hands: Hand[] = [];
  const marker = new MatchFinder(/x/g, () => {
    const hand = new Hand();
    hands.push(hand);
    return hand;
  });
  return { marker, hands };
};

test("each line gets its own answer, from one thread", () => {
  const { marker, hands } = begun();
  const took: unknown[] = [];
  marker.ask("a", (spans) => took.push(spans));
  marker.ask("bb", (spans) => took.push(spans));
  expect(hands).toHaveLength(1);
  hands[0]?.asked.forEach((asked) => hands[0]?.answer(asked));
  expect(took).toEqual([[[0, 1]], [[0, 2]]]);
});

test("nobody is told of a line that has gone out of sight", () => {
  const { marker, hands } = begun();
  const take = vi.fn();
  const leave = marker.ask("a", take);
  leave();
  hands[0]?.asked.forEach((asked) => hands[0]?.answer(asked));
  expect(take).not.toHaveBeenCalled();
});

test("an expression that takes too long is given up, and its thread ended", () => {
  const { marker, hands } = begun();
  const take = vi.fn();
  marker.ask("a", take);
  vi.advanceTimersByTime(TIMEOUT_MS);
  expect(hands[0]?.terminate).toHaveBeenCalledOnce();
  marker.ask("b", take);
  expect(hands).toHaveLength(1);
  expect(take).not.toHaveBeenCalled();
});

test("an expression that answers in time is never given up", () => {
  const { marker, hands } = begun();
  for (let line = 0; line < 5; line++) {
    marker.ask("a", () => undefined);
    vi.advanceTimersByTime(TIMEOUT_MS - 1);
    hands[0]?.answer(hands[0].asked.at(-1) ?? { id: -1, text: "", expression: /x/ });
  }
  vi.advanceTimersByTime(10 * TIMEOUT_MS);
  expect(hands[0]?.terminate).not.toHaveBeenCalled();
});

test("after it was closed it begins anew", () => {
  const { marker, hands } = begun();
  marker.ask("a", () => undefined);
  marker.close();
  marker.ask("b", () => undefined);
  expect(hands).toHaveLength(2);
  expect(hands[0]?.terminate).toHaveBeenCalledOnce();
});

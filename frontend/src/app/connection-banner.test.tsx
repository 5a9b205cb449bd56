import { act, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { watchResponse } from "@/api/connection-status";
import { ConnectionBanner } from "./connection-banner";

type Answer = () => Promise<Response>;
let answer: Answer;
const fine: Answer = () => Promise.resolve(new Response("{}"));
const dead: Answer = () => Promise.reject(new TypeError("Failed to fetch"));
/** Takes the request and never answers, until the page gives up. */
const frozen: Answer = () => new Promise(() => undefined);

beforeEach(() => {
  vi.useFakeTimers();
  answer = fine;
  vi.stubGlobal("fetch", () => answer());
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

const pass = (ms: number) => act(() => vi.advanceTimersByTimeAsync(ms));
const notice = () => screen.getByRole("status").textContent;

test("a platform that answers is no news; one that is frozen is said after five seconds, until it is back", async () => {
  render(<ConnectionBanner />);
  await pass(60_000);
  expect(notice()).toBe("");
  let thaw: (response: Response) => void = () => undefined;
  answer = () => new Promise((resolve) => (thaw = resolve));
  await pass(4_000);
  expect(notice()).toBe("");
  await pass(4_000);
  expect(notice()).toContain("平台没有回应");
  thaw(new Response("{}"));
  await pass(0);
  expect(notice()).toBe("");
});

test("a platform that is not there is said at once when something was asked, whatever the page asks", async () => {
  render(<ConnectionBanner />);
  await expect(watchResponse(dead())).rejects.toThrow("Failed to fetch");
  await pass(0);
  expect(notice()).toContain("连接不上平台");
  await pass(3_000);
  expect(notice()).toBe("");
  await watchResponse(Promise.resolve(new Response("", { status: 502 })));
  await pass(0);
  expect(notice()).toContain("连接不上平台");
});

test("a request that the page gave up itself says nothing of the platform", async () => {
  render(<ConnectionBanner />);
  await expect(watchResponse(Promise.reject(new DOMException("", "AbortError")))).rejects.toThrow();
  await pass(0);
  expect(notice()).toBe("");
});

test("who comes back to a hidden page is not told that it is old before it had time to ask", async () => {
  render(<ConnectionBanner />);
  answer = frozen;
  vi.spyOn(document, "visibilityState", "get").mockReturnValue("hidden");
  await pass(60_000);
  vi.spyOn(document, "visibilityState", "get").mockReturnValue("visible");
  await pass(1_000);
  expect(notice()).toBe("");
  await pass(6_000);
  expect(notice()).toContain("平台没有回应");
});

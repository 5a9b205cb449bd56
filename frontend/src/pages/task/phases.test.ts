import { expect, test } from "vitest";
import type { TaskEvent } from "@/api/types";
import { buildPhases } from "./phases";

const at = (second: number) => new Date(Date.UTC(2026, 10, 21, 5, 0, second)).toISOString();
const event = (second: number, attempt: number, code: string): TaskEvent => ({
  id: second + 1,
  attempt,
  at: at(second),
  kind: code.startsWith("STATE_") ? "state" : "attempt",
  code,
  params: {},
  message: "",
  hint: "",
});

const RESTARTED = [
  event(0, 0, "TASK_CREATED"),
  event(1, 0, "STATE_QUEUED"),
  event(3, 1, "STATE_STARTING"),
  event(3, 1, "ATTEMPT_BEGAN"),
  event(6, 1, "STATE_RUNNING"),
  event(10, 1, "STATE_QUEUED"),
  event(11, 2, "STATE_STARTING"),
  event(12, 2, "STATE_RUNNING"),
];

test("waiting belongs to the attempt that it waits for, and the last phase goes on", () => {
  expect(buildPhases({ createdAt: at(0), endedAt: null }, RESTARTED)).toEqual([
    {
      attempt: 1,
      phases: [
        { state: "initializing", from: at(0), to: at(1) },
        { state: "queued", from: at(1), to: at(3) },
        { state: "starting", from: at(3), to: at(6) },
        { state: "running", from: at(6), to: at(10) },
      ],
    },
    {
      attempt: 2,
      phases: [
        { state: "queued", from: at(10), to: at(11) },
        { state: "starting", from: at(11), to: at(12) },
        { state: "running", from: at(12), to: null },
      ],
    },
  ]);
});

test("how a task ended takes no time", () => {
  const ended = [...RESTARTED, event(20, 2, "STATE_SUCCEEDED")];
  const last = buildPhases({ createdAt: at(0), endedAt: at(20) }, ended).at(-1);
  expect(last?.phases.at(-1)).toEqual({ state: "running", from: at(12), to: at(20) });
});

test("a task that never started has waited", () => {
  const ended = [event(1, 0, "STATE_QUEUED"), event(5, 0, "STATE_STOPPED")];
  expect(buildPhases({ createdAt: at(0), endedAt: at(5) }, ended)).toEqual([
    {
      attempt: 1,
      phases: [
        { state: "initializing", from: at(0), to: at(1) },
        { state: "queued", from: at(1), to: at(5) },
      ],
    },
  ]);
});

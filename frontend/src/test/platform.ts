import { http, HttpResponse } from "msw";
import { setupServer } from "msw/node";
import type { Member } from "@/api/types";
import {
  codeSource,
  dataset,
  environment,
  framework,
  group,
  limits,
  model,
  preflight,
  task,
  worker,
  zone,
} from "./fixtures";

export const api = (path: string) => `http://fermi.test/api/v1${path}`;

export function ok(data: unknown, status = 200) {
  return HttpResponse.json({ code: 200, message: "", data }, { status });
}

export function list(...items: unknown[]) {
  return ok({ items, total: items.length, page: 1, pageSize: 100 });
}

export function refuse(status: number, error: string, message: string, errors?: unknown[]) {
  return HttpResponse.json({ code: status, message, error, errors, requestId: "req-1" }, { status });
}

/** Somebody with `role` in the fixtures' project. */
export const withRole = (role: Member["role"]) => ({
  username: "ada",
  email: "",
  isAdministrator: false,
  language: "zh",
  projects: [{ id: "project-1", name: "默认", role, warm: false, createdAt: "2026-11-21T05:00:00Z" }],
});

export const me = withRole("member");

const healthy = {
  taskId: "task-1",
  status: "running",
  healthy: true,
  summary: "训练正常：第 3 步。",
  findings: [],
  resumePoint: null,
};

/** A platform where everything works, and one task is running. Tests put their own answers before these. */
export const platform = setupServer(
  http.get("http://fermi.test/_allauth/browser/v1/config", () =>
    HttpResponse.json({}, { headers: { "Set-Cookie": "csrftoken=from-config; Path=/" } }),
  ),
  http.get("http://fermi.test/healthz", () => HttpResponse.json({ status: "ok" })),
  http.get(api("/auth/me"), () => ok(me)),
  http.get(api("/auth/sign-in"), () => ok({ embedded: false })),
  http.get(api("/notices"), () => ok({ fit: true, findings: [] })),
  http.get(api("/inbox"), () => ok({ items: [], unread: 0, total: 0, page: 1, pageSize: 10 })),
  http.get(api("/dev-environments"), () => list(environment("env-1"), environment("env-2"))),
  http.get(api("/dev-environments/:id/telemetry"), () =>
    ok({
      from: "2026-11-21T05:00:00Z",
      to: "2026-11-21T06:00:00Z",
      stepSeconds: 15,
      emulated: false,
      series: [],
      tasks: [],
    }),
  ),
  http.get(api("/dev-environments/:id"), ({ params }) => ok(environment(String(params.id)))),
  http.get(api("/clusters"), () => list({ id: "cluster-1", name: "本机" })),
  http.get(api("/environment-templates"), () => list()),
  http.get(api("/queue"), () => list()),
  http.get(api("/saved-views"), () => list()),
  http.get(api("/tokens"), () => list()),
  http.get(api("/projects/:id/members"), () => list({ username: "ada", role: "maintainer" })),
  http.get(api("/projects/:id/secrets"), () => list()),
  http.get(api("/projects/:id/limits"), () => ok(limits)),
  http.get(api("/projects/:id/limits/users"), () => list()),
  http.get(api("/datasets"), () => list(dataset)),
  http.get(api("/workers"), () => list(worker("gn6-0"), worker("gn7-0"))),
  http.get(api("/workers/join-tokens"), () => list()),
  http.get(api("/worker-groups"), () => list(group)),
  http.get(api("/preflights"), () => list(preflight)),
  http.get(api("/preflights/:id"), () => ok(preflight)),
  http.get(api("/models"), () => list(model)),
  http.get(api("/availability-zones"), () => list(zone)),
  http.get(api("/frameworks"), () => list(framework)),
  http.post(api("/frameworks/recommend"), () => refuse(404, "NOT_FOUND", "")),
  http.get(api("/training-tasks"), () => list(task)),
  http.get(api("/training-tasks/:id"), () => ok(task)),
  http.get(api("/training-tasks/:id/diagnosis"), () => ok(healthy)),
  http.get(api("/training-tasks/:id/events"), () => list()),
  http.get(api("/training-tasks/:id/checkpoints"), () => list()),
  http.get(api("/training-tasks/:id/code/source"), () => ok(codeSource())),
  http.get(api("/training-tasks/:id/pulses"), ({ params }) => ok({ taskId: params.id, attempt: 1, ranks: [] })),
  http.get(api("/training-tasks/:id/telemetry/now"), ({ params }) =>
    ok({ taskId: params.id, at: null, emulated: false, ranks: [] }),
  ),
  http.get(api("/training-tasks/:id/scaling"), () => ok({ expected: null, tokensPerSecond: null, offBy: null })),
  http.get(api("/training-tasks/:id/metrics"), () => ok({ items: [], next: null })),
  http.get(api("/training-tasks/:id/logs"), () =>
    ok({ rank: 0, attempt: 1, lines: [{ offset: 0, text: "hello from rank 0" }], cursor: "1", end: true }),
  ),
);

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
  noticeKinds,
  preflight,
  task,
  worker,
  zone,
} from "./fixtures";

export const apiUrl = (path: string) => `http://fermi.test/api/v1${path}`;

export function respondWith(data: unknown, status = 200) {
  return HttpResponse.json({ code: 200, message: "", data }, { status });
}

export function respondWithList(...items: unknown[]) {
  return respondWith({ items, total: items.length, page: 1, pageSize: 100 });
}

export function respondWithError(status: number, error: string, message: string, errors?: unknown[]) {
  return HttpResponse.json({ code: status, message, error, errors, requestId: "req-1" }, { status });
}

/** Returns a user with `role` in the fixtures' project. */
export const buildUser = (role: Member["role"]) => ({
  username: "ada",
  email: "",
  isAdministrator: false,
  language: "zh",
  projects: [{ id: "project-1", name: "默认", role, warm: false, createdAt: "2026-11-21T05:00:00Z" }],
});

export const me = buildUser("member");

const healthy = {
  taskId: "task-1",
  status: "running",
  healthy: true,
  summary: "训练正常：第 3 步。",
  findings: [],
  resumePoint: null,
};

/** Handlers of a working platform with one running task. Tests add their own handlers before these. */
export const platformHandlers = setupServer(
  http.get("http://fermi.test/_allauth/browser/v1/config", () =>
    HttpResponse.json({}, { headers: { "Set-Cookie": "csrftoken=from-config; Path=/" } }),
  ),
  http.get("http://fermi.test/healthz", () => HttpResponse.json({ status: "ok" })),
  http.get(apiUrl("/auth/me"), () => respondWith(me)),
  http.get(apiUrl("/sessions"), () => respondWithList()),
  http.get(apiUrl("/directories"), () => respondWithList()),
  http.get(apiUrl("/auth/sign-in"), () => respondWith({ embedded: false })),
  http.get("http://fermi.test/_allauth/browser/v1/auth/session", () => HttpResponse.json({}, { status: 401 })),
  http.get(apiUrl("/auth/providers"), () =>
    respondWith({ localAccounts: true, passwords: true, providers: [], refusal: null }),
  ),
  http.get(apiUrl("/auth/banner"), () => respondWith(null)),
  http.get("http://fermi.test/_allauth/browser/v1/account/authenticators", () =>
    HttpResponse.json({ status: 200, data: [] }),
  ),
  http.get(apiUrl("/notices"), () => respondWith({ fit: true, findings: [] })),
  http.get(apiUrl("/notice-kinds"), () => respondWith({ items: noticeKinds })),
  http.get(apiUrl("/inbox"), () => respondWith({ items: [], unread: 0, total: 0, page: 1, pageSize: 10 })),
  http.get(apiUrl("/proposals"), () => respondWithList()),
  http.get(apiUrl("/dev-environments"), () => respondWithList(environment("env-1"), environment("env-2"))),
  http.get(apiUrl("/dev-environments/:id/telemetry"), () =>
    respondWith({
      from: "2026-11-21T05:00:00Z",
      to: "2026-11-21T06:00:00Z",
      stepSeconds: 15,
      emulated: false,
      series: [],
      tasks: [],
    }),
  ),
  http.get(apiUrl("/dev-environments/:id"), ({ params }) => respondWith(environment(String(params.id)))),
  http.get(apiUrl("/clusters"), () => respondWithList({ id: "cluster-1", name: "本机" })),
  http.get(apiUrl("/environment-templates"), () => respondWithList()),
  http.get(apiUrl("/queue"), () => respondWithList()),
  http.get(apiUrl("/saved-views"), () => respondWithList()),
  http.get(apiUrl("/tokens"), () => respondWithList()),
  http.get(apiUrl("/oauth/grants"), () => respondWithList()),
  http.get(apiUrl("/projects/:id/members"), () => respondWithList({ username: "ada", role: "maintainer" })),
  http.get(apiUrl("/projects/:id/secrets"), () => respondWithList()),
  http.get(apiUrl("/projects/:id/service-accounts"), () => respondWithList()),
  http.get(apiUrl("/projects/:id/exchange-rules"), () => respondWithList()),
  http.get(apiUrl("/exchange-issuers"), () => respondWith({ issuers: [] })),
  http.get(apiUrl("/projects/:id/tokens"), () => respondWithList()),
  http.get(apiUrl("/projects/:id/limits"), () => respondWith(limits)),
  http.get(apiUrl("/projects/:id/limits/users"), () => respondWithList()),
  http.get(apiUrl("/datasets"), () => respondWithList(dataset)),
  http.get(apiUrl("/workers"), () => respondWithList(worker("gn6-0"), worker("gn7-0"))),
  http.get(apiUrl("/workers/join-tokens"), () => respondWithList()),
  http.get(apiUrl("/worker-groups"), () => respondWithList(group)),
  http.get(apiUrl("/preflights"), () => respondWithList(preflight)),
  http.get(apiUrl("/preflights/:id"), () => respondWith(preflight)),
  http.get(apiUrl("/models"), () => respondWithList(model)),
  http.get(apiUrl("/availability-zones"), () => respondWithList(zone)),
  http.get(apiUrl("/frameworks"), () => respondWithList(framework)),
  http.post(apiUrl("/frameworks/recommend"), () => respondWithError(404, "NOT_FOUND", "")),
  http.get(apiUrl("/training-tasks"), () => respondWithList(task)),
  http.get(apiUrl("/training-tasks/:id"), () => respondWith(task)),
  http.get(apiUrl("/training-tasks/:id/diagnosis"), () => respondWith(healthy)),
  http.get(apiUrl("/training-tasks/:id/tracker-runs"), () => respondWith({ items: [], own: null, canSync: false })),
  http.get(apiUrl("/training-tasks/:id/events"), () => respondWithList()),
  http.get(apiUrl("/training-tasks/:id/checkpoints"), () => respondWithList()),
  http.get(apiUrl("/training-tasks/:id/code/source"), () => respondWith(codeSource())),
  http.get(apiUrl("/training-tasks/:id/pulses"), ({ params }) =>
    respondWith({ taskId: params.id, attempt: 1, ranks: [] }),
  ),
  http.get(apiUrl("/training-tasks/:id/telemetry/now"), ({ params }) =>
    respondWith({ taskId: params.id, at: null, emulated: false, ranks: [] }),
  ),
  http.get(apiUrl("/training-tasks/:id/scaling"), () =>
    respondWith({ expected: null, tokensPerSecond: null, offBy: null }),
  ),
  http.get(apiUrl("/training-tasks/:id/metrics"), () => respondWith({ items: [], next: null })),
  http.get(apiUrl("/training-tasks/:id/logs"), () =>
    respondWith({ rank: 0, attempt: 1, lines: [{ offset: 0, text: "hello from rank 0" }], cursor: "1", end: true }),
  ),
);

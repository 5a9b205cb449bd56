import { cleanup, screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, test } from "vitest";
import { meQuery, sessionKeys } from "@/api/session";
import { createQueryClient } from "@/app/query-client";
import { apiUrl, me, respondWith, platformHandlers, respondWithError } from "@/test/platform";
import { renderAt } from "@/test/render";
import { getSafeNext } from ".";

const LOGIN = "http://fermi.test/_allauth/browser/v1/auth/login";

async function signIn(name = "ada") {
  await userEvent.type(await screen.findByLabelText("用户名或邮箱"), name);
  await userEvent.type(screen.getByLabelText("密码"), "secret");
  await userEvent.click(screen.getByRole("button", { name: "登录" }));
}

const answer = (status: number, code: string) =>
  http.post(LOGIN, () => HttpResponse.json({ status, errors: [{ code, message: "?" }] }, { status }));

test("whose session ends while the console is open reads so on the sign-in page, and nobody else does", async () => {
  let ended = false;
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () =>
      ended ? respondWithError(401, "NOT_AUTHENTICATED", "请先登录") : respondWith(me),
    ),
    http.get(apiUrl("/dev-environments"), () => {
      ended = true;
      return respondWithError(401, "NOT_AUTHENTICATED", "请先登录");
    }),
  );
  renderAt("/environments");
  await screen.findByText(/^你的会话已结束/);
  await screen.findByRole("button", { name: "登录" });
  cleanup();
  renderAt("/environments");
  await screen.findByRole("button", { name: "登录" });
  expect(screen.queryByText(/^你的会话已结束/)).toBeNull();
});

test("a session that is itself the first to be refused has ended, too", async () => {
  platformHandlers.use(http.get(apiUrl("/auth/me"), () => respondWithError(401, "NOT_AUTHENTICATED", "请先登录")));
  const client = createQueryClient();
  client.setQueryData(sessionKeys.me, me);
  await expect(client.query({ ...meQuery, staleTime: 0 })).rejects.toThrow("请先登录");
  expect(client.getQueryData(sessionKeys.ended)).toBe(true);
});

test("somebody who is not signed in signs in, and lands where they meant to go", async () => {
  let signedIn = false;
  let sent: unknown;
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () =>
      signedIn ? respondWith(me) : respondWithError(401, "NOT_AUTHENTICATED", "请先登录"),
    ),
    http.post(LOGIN, async ({ request }) => {
      sent = await request.json();
      signedIn = true;
      return HttpResponse.json({ status: 200 });
    }),
  );
  const page = renderAt("/training?status=failed");
  await signIn();
  await screen.findByRole("heading", { name: "训练任务" });
  expect(page.address()).toBe("/training?status=failed");
  expect(sent).toEqual({ username: "ada", password: "secret" });
});

test("a wrong password is said so", async () => {
  platformHandlers.use(answer(400, "username_password_mismatch"));
  renderAt("/sign-in");
  await signIn();
  expect((await screen.findByRole("alert")).textContent).toBe("用户名或密码不正确。");
});

test("a locked account is told to wait", async () => {
  platformHandlers.use(answer(400, "too_many_login_attempts"));
  renderAt("/sign-in");
  await signIn();
  expect((await screen.findByRole("alert")).textContent).toContain("暂时锁定");
});

test("an account with a second factor is asked for its code", async () => {
  const sent: unknown[] = [];
  platformHandlers.use(
    http.post(LOGIN, () =>
      HttpResponse.json({ data: { flows: [{ id: "mfa_authenticate", is_pending: true }] } }, { status: 401 }),
    ),
    http.post("http://fermi.test/_allauth/browser/v1/auth/2fa/authenticate", async ({ request }) => {
      sent.push(await request.json());
      return HttpResponse.json({ status: 200 });
    }),
  );
  renderAt("/sign-in");
  await signIn();
  await userEvent.type(await screen.findByLabelText("验证码"), "123456");
  await userEvent.click(screen.getByRole("button", { name: "登录" }));
  await screen.findByRole("heading", { name: "概览" });
  expect(sent).toEqual([{ code: "123456" }]);
});

test("an e-mail address is sent as one", async () => {
  let sent: unknown;
  platformHandlers.use(
    http.post(LOGIN, async ({ request }) => {
      sent = await request.json();
      return HttpResponse.json({ status: 200 });
    }),
  );
  renderAt("/sign-in");
  await signIn("ada@example.org");
  await screen.findByRole("heading", { name: "概览" });
  expect(sent).toEqual({ email: "ada@example.org", password: "secret" });
});

test("nobody is led to another site after signing in", () => {
  expect(getSafeNext("/training/task-1?x=1")).toBe("/training/task-1?x=1");
  for (const next of ["//evil.example", "/\\evil.example", "https://evil.example", null]) {
    expect(getSafeNext(next)).toBe("/");
  }
});

test("an embedded platform says how to get a link, any other whom to ask", async () => {
  renderAt("/sign-in");
  await screen.findByText("没有账号或忘记了密码，请联系平台管理员。");
  expect(screen.queryByText(".venv/bin/fermi login-link")).toBeNull();
  cleanup();
  platformHandlers.use(http.get(apiUrl("/auth/sign-in"), () => respondWith({ embedded: true })));
  renderAt("/sign-in");
  await screen.findByText(".venv/bin/fermi login-link");
});

test("a platform that is not there is said on the sign-in page too", async () => {
  platformHandlers.use(
    http.get(apiUrl("/auth/sign-in"), () => HttpResponse.error()),
    http.get("http://fermi.test/healthz", () => HttpResponse.error()),
  );
  renderAt("/sign-in");
  await screen.findByText(/连接不上平台，页面上是/);
});

test("who is no operator is told who may enter, and finds the way back", async () => {
  renderAt("/operators-only");
  await screen.findByRole("heading", { name: "运维后台只对运维人员开放", level: 1 });
  const back = screen.getByRole("link", { name: "回到训练任务" });
  expect(back.getAttribute("href")).toBe("/training");
});

test("a sign-in by a provider goes on with the account's second factor", async () => {
  platformHandlers.use(
    http.get("http://fermi.test/_allauth/browser/v1/auth/session", () =>
      HttpResponse.json({ data: { flows: [{ id: "mfa_authenticate", is_pending: true }] } }, { status: 401 }),
    ),
  );
  renderAt("/sign-in");
  expect(await screen.findByLabelText("验证码")).toBeTruthy();
  expect(screen.queryByLabelText("密码")).toBeNull();
});

test("where passwords are switched off there are the providers alone, and why the last one refused", async () => {
  let asked: string | null = null;
  const sent: unknown[] = [];
  platformHandlers.use(
    http.get(apiUrl("/auth/providers"), ({ request }) => {
      asked = new URL(request.url).searchParams.get("error");
      return respondWith({
        localAccounts: false,
        passwords: false,
        providers: [{ id: "company", name: "Company", kind: "keycloak" }],
        refusal: { error: "IDENTITY_NONCE", message: "另一次登录的响应。", hint: "请重新登录。" },
      });
    }),
    http.post(apiUrl("/auth/providers/company/start"), async ({ request }) => {
      sent.push(await request.json());
      return respondWithError(404, "NOT_FOUND", "不存在");
    }),
  );
  renderAt("/sign-in?error=IDENTITY_NONCE&next=%2Ftraining");
  expect((await screen.findByRole("alert")).textContent).toContain("另一次登录的响应。");
  expect(asked).toBe("IDENTITY_NONCE");
  expect(screen.queryByLabelText("密码")).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "使用 Company 登录" }));
  expect(await screen.findByText("不存在")).toBeTruthy();
  expect(sent).toEqual([{ next: "/training" }]);
});

import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, test } from "vitest";
import type { SignInPolicy } from "@/api/policies";
import { apiUrl, me, platformHandlers, respondWith, respondWithError } from "@/test/platform";
import { renderAt } from "@/test/render";

const policy: SignInPolicy = {
  passwordLength: 8,
  secondFactor: "nobody",
  tokensExempt: false,
  sessionHours: 0,
  idleMinutes: 0,
  bannerTitleEn: "",
  bannerTitleZh: "",
  bannerTextEn: "",
  bannerTextZh: "",
  bannerRequired: false,
  bannerVersion: 0,
  readonly: ["sessionHours"],
  withoutSecondFactor: { administrators: 1, everybody: 12 },
};

function usePolicy() {
  const sent: Record<string, unknown>[] = [];
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () => respondWith({ ...me, isAdministrator: true })),
    http.get(apiUrl("/sign-in-policy"), () => respondWith(policy)),
    http.get(apiUrl("/audit-stream"), () => respondWith({ receivers: [] })),
    http.put(apiUrl("/sign-in-policy"), async ({ request }) => {
      sent.push((await request.json()) as Record<string, unknown>);
      return respondWith({ ...policy, ...sent.at(-1) });
    }),
  );
  return sent;
}

test("who lacks a second factor is counted before a rule is saved", async () => {
  const sent = usePolicy();
  renderAt("/administration/policies");
  const user = userEvent.setup();
  await user.selectOptions(await screen.findByLabelText("适用范围"), "everybody");
  await screen.findByText(/12 个有密码的账号/);
  await user.click(screen.getByRole("button", { name: "保存" }));
  await waitFor(() => expect(sent).toHaveLength(1));
  expect(sent[0]).toMatchObject({ secondFactor: "everybody", passwordLength: 8, bannerTextEn: "" });
  expect(sent[0]).not.toHaveProperty("readonly");
});

test("what the environment sets is locked and says by which variable", async () => {
  usePolicy();
  renderAt("/administration/policies");
  expect(await screen.findByLabelText("会话最长时间（小时）")).toHaveProperty("disabled", true);
  screen.getByText("由平台的环境变量 FERMI_SESSION_HOURS 设定。");
  await screen.findByText("审计记录没有发送到任何地方。");
});

test("a refused field is shown", async () => {
  usePolicy();
  const problem = { field: "bannerTextZh", error: "BANNER_INCOMPLETE", message: "缺少正文", hint: "" };
  platformHandlers.use(
    http.put(apiUrl("/sign-in-policy"), () => respondWithError(400, "INVALID_REQUEST", "", [problem])),
  );
  renderAt("/administration/policies");
  await userEvent.click(await screen.findByRole("button", { name: "保存" }));
  expect((await screen.findByRole("alert")).textContent).toBe("缺少正文");
});

test("a notice is accepted, and a second factor set up, before the first page", async () => {
  let step = "BANNER_NOT_ACCEPTED";
  const totp = "http://fermi.test/_allauth/browser/v1/account/authenticators/totp";
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () => (step ? respondWithError(403, step, "?") : respondWith(me))),
    http.get(apiUrl("/auth/banner"), () =>
      respondWith({ title: "声明", text: "仅限授权使用。", required: true, version: 3 }),
    ),
    http.post(apiUrl("/auth/banner/accept"), async ({ request }) => {
      expect(await request.json()).toEqual({ version: 3 });
      step = "SECOND_FACTOR_REQUIRED";
      return respondWith(null);
    }),
    http.get(totp, () => HttpResponse.json({ meta: { secret: "KEYKEYKEY" } }, { status: 404 })),
    http.post(totp, () => {
      step = "";
      return HttpResponse.json({ status: 200, data: {} });
    }),
    http.get("http://fermi.test/_allauth/browser/v1/account/authenticators/recovery-codes", () =>
      HttpResponse.json({ data: { unused_codes: ["11112222", "33334444"] } }),
    ),
  );
  const page = renderAt("/training");
  const user = userEvent.setup();
  await screen.findByText("仅限授权使用。");
  await user.click(screen.getByRole("button", { name: "接受并继续" }));
  await screen.findByText("KEYKEYKEY");
  await user.type(screen.getByLabelText("验证码"), "123456");
  await user.click(screen.getByRole("button", { name: "完成设置" }));
  await screen.findByText("33334444");
  await user.click(screen.getByRole("button", { name: "我已保存" }));
  await screen.findByRole("heading", { name: "训练任务" });
  expect(page.address()).toBe("/training");
});

import { screen, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test, vi } from "vitest";
import type { IdentityProvider } from "@/api/identity";
import { apiUrl, me, platformHandlers, respondWith, respondWithError, respondWithList } from "@/test/platform";
import { renderAt } from "@/test/render";
import { buildBody, isAskedLater } from "./recipes";
import { buildSamlBody } from "./saml";

const company: IdentityProvider = {
  id: "company",
  kind: "keycloak",
  name: "Company",
  clientId: "fermi",
  hasSecret: true,
  settings: { server_url: "https://sso.example.org/realms/main", uid_claim: "oid", allowed_domains: ["example.org"] },
  enabled: true,
  readonly: false,
  callbackUrl: "https://fermi.example.org/auth/oidc/company/login/callback/",
  metadataUrl: null,
  logoutUrl: "https://fermi.example.org/auth/backchannel-logout/company",
  linkCount: 2,
};

const LIST = apiUrl("/identity-providers");
const ONE = apiUrl("/identity-providers/company");

function show(...providers: IdentityProvider[]) {
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () => respondWith({ ...me, isAdministrator: true })),
    http.get(LIST, () => respondWithList(...providers)),
  );
  return renderAt("/administration/sign-in");
}

test("a provider is added by its recipe, with the callback address to enter there", async () => {
  const sent = vi.fn();
  platformHandlers.use(
    http.post(LIST, async ({ request }) => {
      sent(await request.json());
      return respondWith(company, 201);
    }),
  );
  show();
  await userEvent.click(await screen.findByRole("button", { name: "添加身份提供方" }));
  const dialog = within(await screen.findByRole("dialog"));
  await userEvent.selectOptions(dialog.getByLabelText("身份提供方"), "Google");
  dialog.getByText("例如 https://accounts.google.com");
  await userEvent.type(dialog.getByLabelText("ID"), "google");
  dialog.getByText(`${location.origin}/auth/oidc/google/login/callback/`);
  await userEvent.type(dialog.getByLabelText("名称"), "Google");
  await userEvent.type(dialog.getByLabelText("签发者"), "https://accounts.google.com");
  await userEvent.type(dialog.getByLabelText("客户端 ID"), "fermi");
  await userEvent.type(dialog.getByLabelText("客户端密钥"), "secret");
  await userEvent.type(dialog.getByLabelText("允许的域名"), "example.org, example.com");
  await userEvent.click(dialog.getByRole("button", { name: "保存" }));
  await screen.findByText("已保存");
  expect(sent.mock.calls).toEqual([
    [
      {
        id: "google",
        kind: "google",
        name: "Google",
        clientId: "fermi",
        secret: "secret",
        settings: {
          server_url: "https://accounts.google.com",
          allowed_domains: ["example.org", "example.com"],
          create_users: true,
          link_by_verified_email: false,
          end_tokens: true,
          sign_out_there: false,
        },
      },
    ],
  ]);
});

test("a vendor has the setting that names the organisation, and none of OpenID Connect", async () => {
  show();
  await userEvent.click(await screen.findByRole("button", { name: "添加身份提供方" }));
  const dialog = within(await screen.findByRole("dialog"));
  await userEvent.selectOptions(dialog.getByLabelText("身份提供方"), "企业微信");
  await userEvent.type(dialog.getByLabelText("ID"), "firm");
  dialog.getByText(`${location.origin}/auth/vendors/firm/login/callback/`);
  dialog.getByLabelText("应用的 AgentId");
  expect(dialog.queryByLabelText("签发者")).toBeNull();
  expect(dialog.queryByLabelText("允许的域名")).toBeNull();
  expect(buildBody("wecom", { "settings.agent_id": "1000002", "settings.fetch_groups": "on" }).settings).toEqual({
    agent_id: "1000002",
    create_users: false,
    fetch_groups: true,
  });
});

test("asking a provider about people later adds a scope, or Google's parameter, and the others stay", () => {
  const build = (kind: "okta" | "google", texts: Record<string, string>, before: Record<string, unknown>) => {
    const { scopes, auth_params } = buildBody(kind, texts, before).settings as Record<string, unknown>;
    return { scopes, auth_params };
  };
  const on = { asked_later: "on", "settings.scopes": "groups" };
  const off = { "settings.scopes": "groups" };
  const okta = { scopes: ["groups", "offline_access"] };
  expect(build("okta", on, {})).toEqual(okta);
  expect(build("okta", { ...on, "settings.scopes": "groups offline_access" }, {})).toEqual(okta);
  expect(build("okta", off, okta)).toEqual({ scopes: ["groups"] });
  const google = { auth_params: { hd: "example.org", access_type: "offline" } };
  expect(build("google", on, { auth_params: { hd: "example.org" } })).toEqual({ scopes: ["groups"], ...google });
  expect(build("google", off, google)).toEqual({ scopes: ["groups"], auth_params: { hd: "example.org" } });
  expect([isAskedLater("okta", okta), isAskedLater("google", google), isAskedLater("google", okta)]).toEqual([
    true,
    true,
    false,
  ]);
});

test("a provider says what ends when a person leaves or signs out", async () => {
  const sent = vi.fn();
  platformHandlers.use(
    http.patch(ONE, async ({ request }) => {
      sent(await request.json());
      return respondWith(company);
    }),
  );
  show({ ...company, settings: { ...(company.settings as object), scopes: ["groups", "offline_access"] } });
  await userEvent.click(await screen.findByRole("button", { name: "编辑 Company" }));
  const dialog = within(await screen.findByRole("dialog"));
  expect(dialog.getByLabelText<HTMLInputElement>("其他范围").value).toBe("groups");
  await userEvent.click(dialog.getByText("用户离开或退出登录时"));
  await userEvent.click(dialog.getByLabelText(/^这些用户的 API 令牌同时失效/));
  await userEvent.click(dialog.getByLabelText(/^在此退出登录时/));
  await userEvent.click(dialog.getByRole("button", { name: "保存" }));
  await screen.findByText("已保存");
  expect(sent).toHaveBeenCalledWith(
    expect.objectContaining({
      settings: expect.objectContaining({
        scopes: ["groups", "offline_access"],
        end_tokens: false,
        sign_out_there: true,
        uid_claim: "oid",
      }) as object,
    }),
  );
});

test("a SAML provider is added by its metadata, with the two addresses to enter there", async () => {
  const sent = vi.fn();
  platformHandlers.use(
    http.post(LIST, async ({ request }) => {
      sent(await request.json());
      return respondWith(company, 201);
    }),
  );
  show();
  await userEvent.click(await screen.findByRole("button", { name: "添加身份提供方" }));
  const dialog = within(await screen.findByRole("dialog"));
  await userEvent.selectOptions(dialog.getByLabelText("身份提供方"), "SAML 2.0");
  await userEvent.type(dialog.getByLabelText("ID"), "firm");
  dialog.getByText(`${location.origin}/auth/saml/firm/acs/`);
  dialog.getByText(`${location.origin}/auth/saml/firm/metadata/`);
  dialog.getByText(/App Federation Metadata Url/);
  await userEvent.selectOptions(dialog.getByLabelText("产品"), "AD FS");
  dialog.getByText(/Relying Party Trusts/);
  expect(dialog.queryByLabelText("客户端 ID")).toBeNull();
  await userEvent.type(dialog.getByLabelText("名称"), "Firm");
  await userEvent.type(dialog.getByLabelText("元数据地址"), "https://sso.example.org/metadata");
  await userEvent.type(dialog.getByLabelText("用户组属性"), "memberOf");
  await userEvent.click(dialog.getByRole("button", { name: "保存" }));
  await screen.findByText("已保存");
  expect(sent.mock.calls).toEqual([
    [
      {
        id: "firm",
        kind: "saml",
        name: "Firm",
        settings: {
          metadata_url: "https://sso.example.org/metadata",
          attributes: { groups: ["memberOf"] },
          create_users: true,
          link_by_verified_email: false,
          vouches_for_emails: false,
        },
      },
    ],
  ]);
});

test("what was read from a SAML provider's metadata goes with its address, and stays without a change", () => {
  const before = {
    metadata_url: "https://sso.example.org/metadata",
    entity_id: "https://sso.example.org",
    sso_url: "https://sso.example.org/sso",
    x509: "-----BEGIN\nEND-----",
    attributes: { email: ["mail"], groups: ["memberOf"] },
  };
  const texts = Object.fromEntries(
    (["metadata_url", "entity_id", "sso_url", "x509"] as const).map((key) => [
      `settings.${key}`,
      before[key].replaceAll("\n", "\r\n"),
    ]),
  );
  const flags = { create_users: false, link_by_verified_email: false, vouches_for_emails: false };
  expect(buildSamlBody({ ...texts, groups: "memberOf" }, before).settings).toEqual({ ...before, ...flags });
  const elsewhere = { ...texts, "settings.metadata_url": "https://other.example.org/metadata" };
  expect(buildSamlBody(elsewhere, before).settings).toEqual({
    metadata_url: "https://other.example.org/metadata",
    attributes: { email: ["mail"] },
    ...flags,
  });
});

test("a refused change names its field, and the dialog stays open", async () => {
  platformHandlers.use(
    http.patch(ONE, () =>
      respondWithError(409, "IDENTITY_LINKED", "已关联账号", [
        { field: "settings.server_url", code: "IDENTITY_LINKED", message: "已关联账号。", hint: "请另建一个。" },
      ]),
    ),
  );
  show(company);
  await userEvent.click(await screen.findByRole("button", { name: "编辑 Company" }));
  const dialog = within(await screen.findByRole("dialog"));
  dialog.getByText(company.callbackUrl);
  await userEvent.click(dialog.getByRole("button", { name: "保存" }));
  await dialog.findByText("已关联账号。 请另建一个。");
  expect(dialog.getByLabelText("签发者").getAttribute("aria-invalid")).toBe("true");
});

test("settings that the form does not show stay, and emptied ones go", () => {
  const texts = { name: "Company", clientId: "fermi", "settings.server_url": "https://sso.example.org" };
  expect(
    buildBody("keycloak", texts, { uid_claim: "oid", allowed_domains: ["example.org"], scopes: ["groups"] }).settings,
  ).toEqual({
    server_url: "https://sso.example.org",
    uid_claim: "oid",
    create_users: false,
    end_tokens: false,
    link_by_verified_email: false,
    sign_out_there: false,
  });
});

test("a provider is disabled, and deleted after a question that counts its links", async () => {
  const changed = vi.fn();
  platformHandlers.use(
    http.patch(ONE, async ({ request }) => {
      changed(await request.json());
      return respondWith({ ...company, enabled: false });
    }),
    http.delete(ONE, () => {
      changed("deleted");
      return respondWith(null);
    }),
  );
  show(company);
  await userEvent.click(await screen.findByRole("button", { name: "停用" }));
  await screen.findByText("已保存");
  await userEvent.click(screen.getByRole("button", { name: "删除 Company" }));
  const dialog = within(await screen.findByRole("alertdialog", { name: "删除 Company？" }));
  dialog.getByText(/已关联 2 个账号/);
  await userEvent.click(dialog.getByRole("button", { name: "删除" }));
  await vi.waitFor(() => {
    expect(changed.mock.calls).toEqual([[{ enabled: false }], ["deleted"]]);
  });
});

test("a test goes on in a second window, which is closed where the platform refuses", async () => {
  const shown = { location: { href: "" }, opener: window, close: vi.fn() };
  const open = vi.spyOn(window, "open").mockReturnValue(shown as unknown as Window);
  platformHandlers.use(
    http.post(`${ONE}/trial`, () => respondWith({ url: "https://sso.example.org/authorize" }), { once: true }),
    http.post(`${ONE}/trial`, () => respondWithError(404, "NOT_FOUND", "不存在")),
  );
  show(company);
  const button = await screen.findByRole("button", { name: "测试 Company" });
  await userEvent.click(button);
  await vi.waitFor(() => {
    expect(shown.location.href).toBe("https://sso.example.org/authorize");
  });
  expect(shown.opener).toBeNull();
  await userEvent.click(button);
  await screen.findByText("不存在");
  expect(shown.close).toHaveBeenCalledTimes(1);
  open.mockRestore();
});

test("a provider of the environment is tested and not changed", async () => {
  show({ ...company, readonly: true });
  await screen.findByText("此身份提供方来自平台的环境变量，只能在那里修改。");
  screen.getByRole("button", { name: "测试 Company" });
  expect(screen.queryByRole("button", { name: "编辑 Company" })).toBeNull();
  expect(screen.queryByRole("button", { name: "停用" })).toBeNull();
});

test("who is no administrator reads why there is no list", async () => {
  platformHandlers.use(http.get(LIST, () => respondWithError(403, "ADMINISTRATOR_ONLY", "只有管理员可以")));
  renderAt("/administration/sign-in");
  await screen.findByText("只有管理员可以");
  expect(screen.queryByRole("button", { name: "添加身份提供方" })).toBeNull();
});

import { screen, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, test } from "vitest";
import { apiUrl, buildUser, platformHandlers, respondWith, respondWithList } from "@/test/platform";
import { renderAt } from "@/test/render";
import { buildConditions, buildSnippet, chooseIssuer, parseConditions } from "./exchange-recipes";
import { PRESETS } from "./token-scopes";

const GITHUB = "https://token.actions.githubusercontent.com";
const GITLAB = "https://gitlab.com";
const account = { name: "ci", username: "ci@project-1", role: "member", createdAt: "2026-11-21T05:00:00Z", tokens: 0 };
const rule = {
  id: "exchange-1",
  serviceAccount: "ci",
  username: "ci@project-1",
  name: "main",
  issuer: GITHUB,
  audience: "http://localhost:3000",
  conditions: { repository: "acme/model", ref: "refs/heads/main" },
  scopes: ["tasks:write"],
  minutes: 15,
  enabled: true,
  createdAt: "2026-11-21T05:00:00Z",
  createdBy: "ada",
  lastUsedAt: null,
};

function servePlatform(sent: unknown[]) {
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () => respondWith(buildUser("maintainer"))),
    http.get(apiUrl("/projects/project-1/service-accounts"), () => respondWithList(account)),
    http.get(apiUrl("/exchange-issuers"), () => respondWith({ issuers: [GITHUB, GITLAB] })),
    http.get(apiUrl("/projects/project-1/exchange-rules"), () => respondWithList(...(sent.length ? [rule] : []))),
    http.post(apiUrl("/projects/project-1/exchange-rules"), async ({ request }) => {
      sent.push(await request.json());
      return respondWith(rule);
    }),
    http.patch(apiUrl("/projects/project-1/exchange-rules/exchange-1"), async ({ request }) => {
      sent.push(await request.json());
      return respondWith(rule);
    }),
    http.delete(apiUrl("/projects/project-1/exchange-rules/exchange-1"), () => {
      sent.push("deleted");
      return respondWith(null);
    }),
  );
}

test("a rule for a branch on GitHub is made, disabled and deleted", async () => {
  const sent: unknown[] = [];
  servePlatform(sent);
  renderAt("/settings");
  await userEvent.click(await screen.findByRole("button", { name: "创建换取规则" }));
  const dialog = await screen.findByRole("dialog");
  await within(dialog).findByRole("option", { name: GITHUB });
  await userEvent.type(within(dialog).getByLabelText("规则名称"), "main");
  await userEvent.type(within(dialog).getByLabelText("代码仓库"), "acme/model");
  expect(within(dialog).queryByRole("option", { name: "全部权限" })).toBeNull();
  await userEvent.click(within(dialog).getByRole("button", { name: "创建" }));
  await within(dialog).findByText("规则已生效。请在 .github/workflows/train.yml 中添加：");
  expect(within(dialog).getByLabelText(".github/workflows/train.yml").textContent).toContain(
    "fermi exchange ci@project-1",
  );
  expect(sent).toEqual([
    {
      name: "main",
      serviceAccount: "ci",
      issuer: GITHUB,
      audience: window.location.origin,
      conditions: { repository: "acme/model", ref: "refs/heads/main" },
      scopes: PRESETS.pipeline,
      minutes: 15,
    },
  ]);
  await userEvent.keyboard("{Escape}");
  const list = await screen.findByRole("list", { name: "流水线换取规则" });
  await within(list).findByText("acme/model");
  await userEvent.click(within(list).getByRole("checkbox", { name: "启用规则 main" }));
  await userEvent.click(within(list).getByRole("button", { name: "删除换取规则：main" }));
  await userEvent.click(within(await screen.findByRole("alertdialog")).getByRole("button", { name: "移除" }));
  await expect.poll(() => sent.slice(1)).toEqual([{ enabled: false }, "deleted"]);
});

test("a refused condition is shown at the repository", async () => {
  servePlatform([]);
  platformHandlers.use(
    http.post(apiUrl("/projects/project-1/exchange-rules"), () =>
      HttpResponse.json(
        {
          code: 400,
          error: "EXCHANGE_RULE_BROAD",
          message: "没有限定代码仓库的条件",
          errors: [{ field: "conditions", error: "EXCHANGE_RULE_BROAD", message: "没有限定代码仓库的条件", hint: "" }],
        },
        { status: 400 },
      ),
    ),
  );
  renderAt("/settings");
  await userEvent.click(await screen.findByRole("button", { name: "创建换取规则" }));
  const dialog = await screen.findByRole("dialog");
  await userEvent.selectOptions(within(dialog).getByLabelText("流水线运行在"), "gitlab");
  await userEvent.selectOptions(within(dialog).getByLabelText("仅限"), "any");
  await userEvent.type(within(dialog).getByLabelText("规则名称"), "main");
  await userEvent.type(within(dialog).getByLabelText("项目"), "acme*");
  await userEvent.click(within(dialog).getByRole("button", { name: "创建" }));
  expect((await within(dialog).findByLabelText("项目")).getAttribute("aria-invalid")).toBe("true");
  await within(dialog).findByText("没有限定代码仓库的条件");
});

test("without a service account there is a word about it", async () => {
  platformHandlers.use(http.get(apiUrl("/auth/me"), () => respondWith(buildUser("maintainer"))));
  renderAt("/settings");
  await screen.findByText("请先创建服务账号，GitHub Actions 和 GitLab 的流水线就能换取它的令牌，无需存储密钥。");
  expect(screen.queryByRole("button", { name: "创建换取规则" })).toBeNull();
});

test("a place becomes conditions on the claims that its issuer has", () => {
  expect(buildConditions("github", "a/b", "tag", "v*")).toEqual({ repository: "a/b", ref: "refs/tags/v*" });
  expect(buildConditions("github", "a/b", "environment", "prod")).toEqual({ repository: "a/b", environment: "prod" });
  expect(buildConditions("github", "a/b", "any", "")).toEqual({ repository: "a/b" });
  expect(buildConditions("gitlab", "a/b", "branch", "main")).toEqual({
    project_path: "a/b",
    ref: "main",
    ref_type: "branch",
  });
  expect(buildConditions("gitlab", "a/b", "environment", "prod")).toEqual({ project_path: "a/b", environment: "prod" });
  expect(buildConditions("gitlab", "a/b", "any", "")).toEqual({ project_path: "a/b" });
  expect(parseConditions("sub = a=b\n\n x ")).toEqual({ sub: "a=b", x: "" });
});

test("the issuer follows the recipe, and another audience is in the command", () => {
  expect(chooseIssuer("github", [GITLAB, GITHUB])).toBe(GITHUB);
  expect(chooseIssuer("github", ["https://git.example.org/_services/token"])).toContain("git.example.org");
  expect(chooseIssuer("gitlab", [GITHUB])).toBeUndefined();
  expect(chooseIssuer("other", [GITLAB])).toBe(GITLAB);
  expect(buildSnippet("github", "ci@p", "fermi")).toContain("fermi exchange ci@p --audience fermi");
  expect(buildSnippet("github", "ci@p", window.location.origin)).not.toContain("--audience");
  expect(buildSnippet("gitlab", "ci@p", "fermi")).toContain("aud: fermi");
});

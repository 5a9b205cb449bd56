import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test, vi } from "vitest";
import { dataset, environment, task } from "@/test/fixtures";
import { apiUrl, respondWithList, respondWith, platformHandlers, respondWithError, buildUser } from "@/test/platform";
import { renderAt } from "@/test/render";

const asMaintainer = () =>
  platformHandlers.use(http.get(apiUrl("/auth/me"), () => respondWith(buildUser("maintainer"))));

test("environments are listed with who uses them, and filtered by the address", async () => {
  const query: string[] = [];
  platformHandlers.use(
    http.get(apiUrl("/dev-environments"), ({ request }) => {
      query.push(new URL(request.url).search);
      return respondWithList(
        environment("env-1", { heldBy: "task-1" }),
        environment("env-2", { cordoned: true, heldBy: "task-2" }),
      );
    }),
  );
  const page = renderAt("/environments?zone=zone-a");
  const holder = await screen.findByRole("link", { name: "first-task" });
  expect(holder.getAttribute("href")).toBe("/training/task-1");
  expect(screen.getByText("暂停调度")).toBeTruthy();
  expect(screen.getByText("你无权查看的任务")).toBeTruthy();
  await userEvent.selectOptions(screen.getByLabelText("类型"), "jupyter");
  await waitFor(() => expect(page.address()).toBe("/environments?zone=zone-a&kind=jupyter"));
  await waitFor(() => expect(query.at(-1)).toContain("kind=jupyter"));
  expect(query.at(-1)).toContain("zone=zone-a");
});

test("an environment shows its holder and its history; only a maintainer may cordon it", async () => {
  platformHandlers.use(
    http.get(apiUrl("/dev-environments/:id"), () => respondWith(environment("env-1", { heldBy: "task-1" }))),
  );
  renderAt("/environments/env-1");
  await waitFor(() => expect(screen.getAllByRole("link", { name: "first-task" })).toHaveLength(2));
  expect(screen.queryByRole("button", { name: "暂停调度" })).toBeNull();
});

test("cordoning asks first and sends only that", async () => {
  asMaintainer();
  const sent = vi.fn();
  platformHandlers.use(
    http.patch(apiUrl("/dev-environments/env-1"), async ({ request }) => {
      sent(await request.json());
      return respondWith(environment("env-1", { cordoned: true }));
    }),
  );
  renderAt("/environments/env-1");
  await userEvent.click(await screen.findByRole("button", { name: "暂停调度" }));
  await userEvent.click(within(await screen.findByRole("alertdialog")).getByRole("button", { name: "暂停调度" }));
  await waitFor(() => expect(sent).toHaveBeenCalledWith({ cordoned: true }));
});

test("a warm environment says what it holds or why it does not; who owns it may switch it", async () => {
  const sent = vi.fn();
  const standing = {
    isWanted: true,
    state: "standing" as const,
    memoryBytes: 412 * 2 ** 20,
    until: "2026-11-21T06:30:00Z",
    reason: null,
  };
  platformHandlers.use(
    http.get(apiUrl("/dev-environments/:id"), () =>
      respondWith(environment("env-1", { warm: true, standby: standing })),
    ),
    http.patch(apiUrl("/dev-environments/env-1"), async ({ request }) => {
      sent(await request.json());
      return respondWith(environment("env-1"));
    }),
  );
  renderAt("/environments/env-1");
  await screen.findByText(/已预热：占用 412 MiB/);
  await userEvent.selectOptions(await screen.findByLabelText("预热"), "off");
  await waitFor(() => expect(sent).toHaveBeenCalledWith({ warm: false }));

  const reason = { code: "STANDBY_WITHOUT_TORCH", message: "没有安装 PyTorch", hint: "请安装" };
  const failed = { ...standing, state: "failed" as const, memoryBytes: null, until: null, reason };
  platformHandlers.use(
    http.get(apiUrl("/dev-environments/:id"), () =>
      respondWith(environment("env-2", { owner: "bob", standby: failed })),
    ),
  );
  renderAt("/environments/env-2");
  await screen.findByText("没有安装 PyTorch");
  expect(screen.getAllByLabelText("预热")).toHaveLength(1);
});

test("an environment that is not there is said so", async () => {
  platformHandlers.use(http.get(apiUrl("/dev-environments/:id"), () => respondWithError(404, "NOT_FOUND", "没有")));
  renderAt("/environments/env-9");
  await screen.findByRole("heading", { name: "没有这个环境" });
});

test("a dataset is added by a path, and what is wrong with it stands at its field", async () => {
  asMaintainer();
  const sent: unknown[] = [];
  platformHandlers.use(
    http.post(apiUrl("/datasets"), async ({ request }) => {
      sent.push(await request.json());
      return sent.length === 1
        ? respondWithError(400, "INVALID_REQUEST", "有误", [
            { field: "path", error: "X", message: "路径不存在", hint: "" },
          ])
        : respondWith(dataset, 201);
    }),
  );
  renderAt("/datasets");
  await userEvent.click(await screen.findByRole("button", { name: "添加数据集" }));
  const dialog = await screen.findByRole("dialog");
  await userEvent.type(within(dialog).getByLabelText("名称"), "corpus");
  await userEvent.type(within(dialog).getByLabelText("服务器上的路径"), "/data/x");
  await userEvent.click(within(dialog).getByRole("button", { name: "添加数据集" }));
  await within(dialog).findByText("路径不存在");
  expect(within(dialog).getByLabelText("服务器上的路径").getAttribute("aria-invalid")).toBe("true");
  await userEvent.click(within(dialog).getByRole("button", { name: "添加数据集" }));
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  expect(sent[1]).toEqual({ name: "corpus", path: "/data/x", projectId: "project-1" });
});

test("a version that is being prepared shows how far it is, a failed one why", async () => {
  const [version] = dataset.versions;
  const versions = [
    { ...version, id: "v-2", name: "v2", status: "preparing", progress: 0.42 },
    { ...version, id: "v-3", name: "v3", status: "failed", error: { code: "X", message: "没有文本", hint: "" } },
  ];
  platformHandlers.use(http.get(apiUrl("/datasets"), () => respondWithList({ ...dataset, versions })));
  renderAt("/datasets");
  const bar = await screen.findByRole("progressbar", { name: "正在准备 v2" });
  expect(bar.getAttribute("aria-valuenow")).toBe("42");
  expect(screen.getByText(/没有文本/)).toBeTruthy();
  expect(screen.queryByRole("button", { name: "添加数据集" })).toBeNull();
});

test("models and zones are listed", async () => {
  renderAt("/models");
  await screen.findByRole("heading", { name: "Small GPT" });
  renderAt("/zones");
  const zone = await screen.findByRole("link", { name: "北京可用区A" });
  expect(zone.getAttribute("href")).toBe("/environments?zone=zone-a");
});

test("a token is shown once, and revoked after a question", async () => {
  const token = {
    id: "t-1",
    name: "ci",
    createdAt: "2026-11-21T05:00:00Z",
    expiresAt: null,
    scopes: null,
    projects: null,
    tasks: null,
    lastUsedAt: null,
    lastUsedFrom: "",
  };
  const revoked = vi.fn(() => respondWith(null));
  platformHandlers.use(
    http.get(apiUrl("/tokens"), () => respondWithList(token)),
    http.post(apiUrl("/tokens"), () => respondWith({ ...token, token: "fermi_secret" }, 201)),
    http.delete(apiUrl("/tokens/t-1"), revoked),
  );
  renderAt("/settings");
  await userEvent.click(await screen.findByRole("button", { name: "创建令牌" }));
  await userEvent.type(within(await screen.findByRole("dialog")).getByLabelText("用途"), "ci");
  await userEvent.click(screen.getByRole("button", { name: "创建" }));
  await screen.findByText("fermi_secret");
  await userEvent.keyboard("{Escape}");
  await userEvent.click(await screen.findByRole("button", { name: "撤销" }));
  expect(revoked).not.toHaveBeenCalled();
  await userEvent.click(within(await screen.findByRole("alertdialog")).getByRole("button", { name: "撤销" }));
  await waitFor(() => expect(revoked).toHaveBeenCalledTimes(1));
});

test("a maintainer changes roles, a viewer only reads them", async () => {
  asMaintainer();
  const changed = vi.fn();
  platformHandlers.use(
    http.get(apiUrl("/projects/:id/members"), () => respondWithList({ username: "bob", role: "member" })),
    http.patch(apiUrl("/projects/project-1/members/bob"), async ({ request }) => {
      changed(await request.json());
      return respondWith({ username: "bob", role: "viewer" });
    }),
  );
  renderAt("/settings");
  await userEvent.selectOptions(await screen.findByLabelText("bob 的角色"), "viewer");
  await waitFor(() => expect(changed).toHaveBeenCalledWith({ role: "viewer" }));
});

const wandb = {
  name: "wandb",
  createdAt: "2026-11-21T05:00:00Z",
  createdBy: "ada",
  updatedAt: "2026-11-21T05:00:00Z",
  updatedBy: "ada",
};

test("a maintainer sets and removes secrets, whose values are never shown", async () => {
  asMaintainer();
  const sent = vi.fn();
  const removed = vi.fn(() => respondWith(null));
  platformHandlers.use(
    http.get(apiUrl("/projects/project-1/secrets"), () => respondWithList(wandb)),
    http.put(apiUrl("/projects/project-1/secrets/hub"), async ({ request }) => {
      sent(await request.json());
      return respondWith({ ...wandb, name: "hub" });
    }),
    http.delete(apiUrl("/projects/project-1/secrets/wandb"), removed),
  );
  renderAt("/settings");
  await screen.findByText("wandb");
  await userEvent.click(screen.getByRole("button", { name: "设置密钥" }));
  const dialog = within(await screen.findByRole("dialog"));
  await userEvent.type(dialog.getByLabelText("名称"), "hub");
  const value = dialog.getByLabelText<HTMLInputElement>("值");
  expect(value.type).toBe("password");
  await userEvent.type(value, "sesame");
  await userEvent.click(dialog.getByRole("button", { name: "保存" }));
  await waitFor(() => expect(sent).toHaveBeenCalledWith({ value: "sesame" }));
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  await userEvent.click(screen.getByRole("button", { name: "删除密钥 wandb" }));
  const question = within(await screen.findByRole("alertdialog"));
  await userEvent.click(question.getByRole("button", { name: "移除" }));
  await waitFor(() => expect(removed).toHaveBeenCalledTimes(1));
});

test("others read the names of secrets and change nothing", async () => {
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () => respondWith(buildUser("viewer"))),
    http.get(apiUrl("/projects/project-1/secrets"), () => respondWithList(wandb)),
  );
  renderAt("/settings");
  await screen.findByText("wandb");
  expect(screen.queryByRole("button", { name: "设置密钥" })).toBeNull();
  expect(screen.queryByRole("button", { name: "删除密钥 wandb" })).toBeNull();
});

test("language and theme are chosen in the settings too", async () => {
  renderAt("/settings");
  await userEvent.selectOptions(await screen.findByLabelText("外观"), "dark");
  expect(document.documentElement.dataset.theme).toBe("dark");
  await userEvent.selectOptions(screen.getByLabelText("外观"), "light");
  await userEvent.selectOptions(screen.getByLabelText("语言"), "en");
  await screen.findByRole("heading", { name: "Settings" });
});

test("a checkpoint leads to a new task that resumes from it", async () => {
  const path = "/data/checkpoints/step 5.pt";
  const checkpoint = { attempt: 1, step: 5, path, sizeBytes: 1, valLoss: null, at: task.createdAt, complete: true };
  platformHandlers.use(http.get(apiUrl("/training-tasks/:id/checkpoints"), () => respondWithList(checkpoint)));
  renderAt("/training/task-1");
  await userEvent.click(await screen.findByRole("tab", { name: "检查点" }));
  const link = await screen.findByRole("link", { name: "从这里继续" });
  const address = new URL(link.getAttribute("href") ?? "", "http://fermi.test");
  expect(Object.fromEntries(address.searchParams)).toEqual({ from: "task-1", resumeFrom: path });
});

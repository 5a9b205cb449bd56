import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test, vi } from "vitest";
import { group } from "@/test/fixtures";
import { apiUrl, respondWithList, respondWith, platformHandlers, respondWithError, buildUser } from "@/test/platform";
import { renderAt } from "@/test/render";
import { buildSettingsChange, formatSettings } from "./settings";

test("a group shows its workers by rank, as the document's table has them", async () => {
  renderAt("/workers/groups");
  const table = await screen.findByRole("group", { name: "bert 的 Worker，按 rank 排列" });
  const rows = [...table.querySelectorAll("tbody tr")].map((row) =>
    [...row.querySelectorAll("td")].map((cell) => cell.textContent).slice(0, 4),
  );
  expect(rows).toEqual([
    ["gn6-0", "0", "0", "0"],
    ["gn39-0", "1", "0", "1"],
    ["gn40-0", "2", "0", "2"],
    ["gn7-0", "3", "0", "3"],
  ]);
});

test("only what the server allows is offered, and starting asks first", async () => {
  const started = vi.fn(() => respondWith(group));
  platformHandlers.use(http.post(apiUrl("/worker-groups/group-1/start"), started));
  renderAt("/workers/groups");
  await userEvent.click(await screen.findByRole("button", { name: "启动" }));
  expect(screen.queryByRole("button", { name: "停止" })).toBeNull();
  const dialog = within(await screen.findByRole("alertdialog", { name: "启动分组 bert？" }));
  expect(started).not.toHaveBeenCalled();
  await userEvent.click(dialog.getByRole("button", { name: "启动" }));
  await screen.findByText("已启动，可在任务页查看");
  expect(started).toHaveBeenCalledTimes(1);
});

test("a variable that looks like a key is warned of, and secrets are used by name", async () => {
  const sent = vi.fn();
  const warning = { code: "ENV_LOOKS_SECRET", message: "OPENAI_KEY 像是密钥", hint: "请用项目的密钥" };
  platformHandlers.use(
    http.get(apiUrl("/worker-groups"), () => respondWithList({ ...group, warnings: [warning] })),
    http.patch(apiUrl("/worker-groups/group-1"), async ({ request }) => {
      sent(await request.json());
      return respondWith(group);
    }),
  );
  renderAt("/workers/groups");
  await screen.findByText(warning.message);
  screen.getByText(warning.hint);
  await userEvent.click(screen.getByRole("button", { name: "配置 bert" }));
  const dialog = within(await screen.findByRole("dialog", { name: "配置分组 bert" }));
  const secrets = dialog.getByLabelText<HTMLTextAreaElement>("取自密钥的变量");
  expect(secrets.value).toBe("WANDB_API_KEY=wandb");
  await userEvent.type(secrets, "{Enter}HF_TOKEN=hub");
  await userEvent.click(dialog.getByRole("button", { name: "保存配置" }));
  await screen.findByText("配置已保存");
  expect(sent.mock.calls[0]?.[0]).toMatchObject({ secretEnv: { WANDB_API_KEY: "wandb", HF_TOKEN: "hub" } });
});

test("a group whose worker has no GPU shows the backend that is used", async () => {
  platformHandlers.use(
    http.get(apiUrl("/worker-groups"), () => respondWithList({ ...group, effectiveBackend: "gloo" })),
  );
  renderAt("/workers/groups");
  await screen.findByText("gloo（设置为 nccl；有 Worker 没有 GPU）");
});

test("a group that runs links to its task", async () => {
  const running = {
    ...group,
    task: { id: "task-1", name: "bert-1", status: "running" },
    allowedActions: ["stop", "restart"],
  };
  platformHandlers.use(http.get(apiUrl("/worker-groups"), () => respondWithList(running)));
  renderAt("/workers/groups");
  const link = await screen.findByRole("link", { name: /bert-1/ });
  expect(link.getAttribute("href")).toBe("/training/task-1");
  expect(screen.queryByRole("button", { name: "配置 bert" })).toBeNull();
  expect(screen.getByRole("button", { name: "重启" })).toBeTruthy();
});

test("the gear shows what is wrong on the fields it names, before and after saving", async () => {
  const problem = (field: string, message: string) => ({ field, error: "X", message, hint: "" });
  const sent: unknown[] = [];
  platformHandlers.use(
    http.get(apiUrl("/worker-groups"), () =>
      respondWithList({ ...group, problems: [problem("masterAddress", "gn9 不在分组中")] }),
    ),
    http.patch(apiUrl("/worker-groups/group-1"), async ({ request }) => {
      sent.push(await request.json());
      return sent.length === 1
        ? respondWithError(400, "INVALID_REQUEST", "有误", [
            problem("worldSize", "World Size 大于 4"),
            problem("env.RANK", "RANK 由平台设置"),
          ])
        : respondWith(group);
    }),
  );
  renderAt("/workers/groups");
  await userEvent.click(await screen.findByRole("button", { name: "配置 bert" }));
  const dialog = within(await screen.findByRole("dialog", { name: "配置分组 bert" }));
  dialog.getByText("gn9 不在分组中");
  await userEvent.type(dialog.getByLabelText("World Size"), "9");
  await userEvent.selectOptions(dialog.getByLabelText("后端"), "gloo");
  await userEvent.click(dialog.getByRole("button", { name: "保存配置" }));
  await dialog.findByText("World Size 大于 4");
  dialog.getByText("RANK 由平台设置");
  expect(dialog.queryByText("gn9 不在分组中")).toBeNull();
  expect(dialog.getByLabelText("World Size").getAttribute("aria-invalid")).toBe("true");
  await userEvent.clear(dialog.getByLabelText("World Size"));
  await userEvent.click(dialog.getByRole("button", { name: "保存配置" }));
  await screen.findByText("配置已保存");
  expect(sent[0]).toMatchObject({ worldSize: 9, backend: "gloo", masterAddress: "gn6", args: ["--epochs", "3"] });
  expect(sent[1]).toMatchObject({ worldSize: null });
});

test("the dialog's texts make the settings they came from; what is not a number is the server's to refuse", () => {
  const { name, masterAddress, worldSize, masterPort, backend, script, args, env, secretEnv, maxRestarts } = group;
  const variables = { env, secretEnv };
  const settings = { name, masterAddress, worldSize, masterPort, backend, script, args, ...variables, maxRestarts };
  expect(buildSettingsChange(formatSettings(group))).toEqual(settings);
  expect(buildSettingsChange({ ...formatSettings(group), masterPort: "", worldSize: "two" })).toEqual({
    ...settings,
    masterPort: 29500,
    worldSize: "two",
  });
});

test("a viewer is offered no group to make", async () => {
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () => respondWith(buildUser("viewer"))),
    http.get(apiUrl("/worker-groups"), () => respondWithList()),
  );
  renderAt("/workers/groups");
  await screen.findByText("还没有分组");
  expect(screen.queryByRole("button", { name: "新建分组" })).toBeNull();
});

test("a group is created by its name alone", async () => {
  const created = vi.fn();
  platformHandlers.use(
    http.get(apiUrl("/worker-groups"), () => respondWithList()),
    http.post(apiUrl("/worker-groups"), async ({ request }) => {
      created(await request.json());
      return respondWith(group, 201);
    }),
  );
  renderAt("/workers/groups");
  await screen.findByText("还没有分组");
  await userEvent.click(screen.getAllByRole("button", { name: "新建分组" })[0] as HTMLElement);
  const dialog = within(await screen.findByRole("dialog"));
  await userEvent.type(dialog.getByLabelText("名称"), "bert");
  await userEvent.click(dialog.getByRole("button", { name: "新建分组" }));
  await waitFor(() => expect(created).toHaveBeenCalledWith({ name: "bert" }));
});

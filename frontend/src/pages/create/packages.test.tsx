import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { PackageInstallations, TaskPackages } from "@/api/packages";
import { apiUrl, respondWith, platformHandlers } from "@/test/platform";
import { renderAt } from "@/test/render";

type Environment = TaskPackages["environments"][number];

const looked = (environmentId: string, more: Partial<Environment> = {}): Environment => ({
  environmentId,
  name: `name-of-${environmentId}`,
  state: "known",
  looking: false,
  lookedAt: "2026-01-01T00:00:00Z",
  python: "/opt/python",
  version: "3.11.9",
  torch: {},
  packageCount: 5,
  reason: null,
  ...more,
});

const found: TaskPackages = {
  python: "mine",
  environments: [looked("env-1"), looked("env-2")],
  looking: false,
  differences: [
    { kind: "torch", name: "torch", fatal: true, values: { "env-1": "2.5.1", "env-2": "2.4.0" } },
    { kind: "package", name: "timm", fatal: false, values: { "env-1": "1.0", "env-2": "" } },
  ],
  missing: [
    { module: "einops", place: "train.py:3", environmentIds: ["env-2"], requirement: "einops==0.8.0", anywhere: true },
  ],
  level: ["einops==0.8.0"],
};

function previewing(packages: () => TaskPackages | null) {
  const none = { ranks: [], files: [], artifacts: [], command: [], problems: [], inUse: [], summary: null };
  const warnings = [{ code: "IMPORT_MISSING", message: "einops 没有安装", hint: "" }];
  platformHandlers.use(
    http.post(apiUrl("/training-tasks/preview"), () =>
      respondWith({ ...none, warnings, proposal: null, packages: packages() }),
    ),
  );
}

const installed = (state: PackageInstallations["items"][number]["state"], output = ""): PackageInstallations => ({
  id: "install-1",
  packages: found.level,
  askedBy: "me",
  createdAt: "2026-01-01T00:00:00Z",
  over: state === "done" || state === "failed",
  items: ["env-1", "env-2"].map((environmentId) => ({
    environmentId,
    name: `name-of-${environmentId}`,
    state,
    exit: state === "done" ? 0 : null,
    output,
    reason: null,
    endedAt: null,
  })),
});

test("what differs and what the script lacks is named once, with where it is", async () => {
  previewing(() => found);
  renderAt("/training/create?environments=env-1,env-2");
  const notes = await screen.findByRole("list", { name: "各环境的包" });
  expect(within(notes).getByText("name-of-env-2 没有安装 einops")).toBeTruthy();
  expect(within(notes).getByText("在 train.py:3 导入")).toBeTruthy();
  expect(within(notes).getByText("torch：2.5.1 (name-of-env-1), 2.4.0 (name-of-env-2)")).toBeTruthy();
  expect(within(notes).getByText("timm：1.0 (name-of-env-1), – (name-of-env-2)")).toBeTruthy();
  expect(screen.queryByText("einops 没有安装")).toBeNull();
});

test("one button installs it in all, shows how that gets on, and looks again", async () => {
  let isThere = false;
  let query: unknown;
  previewing(() => (isThere ? { ...found, differences: [], missing: [], level: [] } : found));
  platformHandlers.use(
    http.post(apiUrl("/dev-environments/packages/level"), async ({ request }) => {
      query = await request.json();
      return respondWith(installed("waiting"));
    }),
    http.get(apiUrl("/dev-environments/packages/level/install-1"), () => {
      isThere = true;
      return respondWith(installed("done", "Successfully installed einops-0.8.0"));
    }),
  );
  renderAt("/training/create?environments=env-1,env-2");
  await userEvent.click(await screen.findByRole("button", { name: "在所有环境中安装" }));
  expect(query).toBeUndefined();
  await userEvent.click(
    within(await screen.findByRole("alertdialog")).getByRole("button", { name: "在所有环境中安装" }),
  );
  await waitFor(() => expect(query).toEqual({ ids: ["env-1", "env-2"], packages: ["einops==0.8.0"], python: "mine" }));
  expect((await screen.findAllByText("已安装")).length).toBe(2);
  await waitFor(() => expect(screen.queryByRole("button", { name: "在所有环境中安装" })).toBeNull());
});

test("while they are looked at, that is said, and the answer comes by itself", async () => {
  let looks = 0;
  const looking = { ...found, looking: true, differences: [], missing: [], level: [] };
  previewing(() => (looks++ === 0 ? looking : found));
  renderAt("/training/create?environments=env-1,env-2");
  await screen.findByText("正在检查各环境的包…");
  await screen.findByText("name-of-env-2 没有安装 einops", undefined, { timeout: 5_000 });
});

test("nothing is said where nothing differs, or no rank runs inside", async () => {
  previewing(() => ({ ...found, differences: [], missing: [], level: [] }));
  renderAt("/training/create?environments=env-1,env-2");
  await screen.findByText("分布式训练");
  expect(screen.queryByText("各环境的包")).toBeNull();
});

test("an environment that cannot be entered says why", async () => {
  const reason = { code: "INSIDE_NO_PYTHON", message: "镜像里没有 Python", hint: "换一个镜像" };
  previewing(() => ({
    ...found,
    environments: [looked("env-1"), looked("env-2", { state: "failed", reason })],
    differences: [],
    missing: [],
    level: [],
  }));
  renderAt("/training/create?environments=env-1,env-2");
  await screen.findByText("镜像里没有 Python");
});

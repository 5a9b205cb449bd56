import { cleanup, screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { CreateRequest, Preview, Problem } from "@/api/types";
import { apiUrl, respondWith, platformHandlers } from "@/test/platform";
import { renderAt } from "@/test/render";

type Place = Preview["environments"][number];

const place = (id: string, runsIn: Place["runsIn"]): Place => ({ environmentId: id, name: `name-of-${id}`, runsIn });
const inside = { way: "inside", code: "WAY_INSIDE_GPUS", message: "环境持有 2 个 GPU。" } as const;
const beside = { way: "beside", code: "WAY_BESIDE_CLAIM", message: "GPU 由 ResourceClaim 持有。" } as const;

/** Every preview's answer, and what the last one was asked with. */
function answering(environments: Place[], problems: Problem[] = []): { config?: CreateRequest["distributedConfig"] } {
  const query: { config?: CreateRequest["distributedConfig"] } = {};
  platformHandlers.use(
    http.post(apiUrl("/training-tasks/preview"), async ({ request }) => {
      query.config = ((await request.json()) as CreateRequest).distributedConfig;
      const nothing = { ranks: [], files: [], artifacts: [], command: [], warnings: [], inUse: [], summary: null };
      return respondWith({ ...nothing, environments, problems });
    }),
  );
  return query;
}

const PAIR = "/training/create?environments=env-1,env-2";
const radio = (name: RegExp) => screen.findByRole("radio", { name });

test("each environment says where its ranks run and why; the choice and the interpreter are sent", async () => {
  const asked = answering([place("env-1", inside), place("env-2", beside)]);
  renderAt(PAIR);
  const reasons = within(await screen.findByRole("group", { name: "各环境的运行位置及原因" }));
  expect(reasons.getAllByRole("listitem").map(({ textContent }) => textContent)).toEqual([
    `name-of-env-1环境内${inside.message}`,
    `name-of-env-2环境外${beside.message}`,
  ]);
  expect(await radio(/^自动/)).toHaveProperty("checked", true);
  expect(asked.config).not.toHaveProperty("runIn");
  await userEvent.click(await radio(/^环境内/));
  await userEvent.type(screen.getByLabelText("Python 解释器"), " /opt/conda/bin/python");
  await waitFor(() => expect(asked.config).toMatchObject({ runIn: "environment", python: "/opt/conda/bin/python" }));
  await userEvent.click(await radio(/^自动/));
  await userEvent.clear(screen.getByLabelText("Python 解释器"));
  await waitFor(() => expect(asked.config).not.toHaveProperty("runIn"));
  expect(asked.config).not.toHaveProperty("python");
});

test("environments with the same answer share it", async () => {
  answering([place("env-1", inside), place("env-2", inside)]);
  renderAt(PAIR);
  const reasons = within(await screen.findByRole("group", { name: "各环境的运行位置及原因" }));
  expect(reasons.getByText("name-of-env-1, name-of-env-2")).toBeTruthy();
  expect(reasons.getAllByText("环境内")).toHaveLength(1);
});

test("where the engine has one way there is nothing to choose, unless the request says something", async () => {
  answering([place("env-1", null), place("env-2", null)]);
  const request = {
    taskName: "again",
    distributedConfig: { enabled: true, nodeIds: ["env-1", "env-2"], masterNode: "env-1", runIn: "pod" },
  };
  platformHandlers.use(http.post(apiUrl("/training-tasks/task-1/clone"), () => respondWith({ request })));
  renderAt(PAIR);
  await screen.findByText("可以提交");
  expect(screen.queryByRole("radio", { name: /^环境外/ })).toBeNull();
  cleanup();
  renderAt("/training/create?from=task-1");
  expect(await radio(/^环境外/)).toHaveProperty("checked", true);
  expect(screen.queryByLabelText("Python 解释器")).toBeNull();
});

test("what is wrong with the place and the interpreter stands at the control", async () => {
  answering(
    [place("env-1", null), place("env-2", beside)],
    [
      { field: "distributedConfig.runIn", error: "INSIDE_NO_PYTHON", message: "镜像里没有 Python", hint: "" },
      { field: "distributedConfig.python", error: "FIELD_LENGTH", message: "太长", hint: "" },
    ],
  );
  renderAt(PAIR);
  const choice = await screen.findByRole("group", { name: "运行位置", description: "镜像里没有 Python" });
  expect(within(choice).getAllByRole("radio")).toHaveLength(3);
  await userEvent.click(screen.getByRole("button", { name: "创建并启动训练" }));
  expect((await screen.findByLabelText("Python 解释器")).getAttribute("aria-invalid")).toBe("true");
  await userEvent.click(screen.getAllByRole("button", { name: "去修改" })[0] as HTMLElement);
  expect(document.activeElement).toBe(await radio(/^自动/));
});

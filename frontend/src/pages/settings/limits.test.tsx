import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import { limits } from "@/test/fixtures";
import { apiUrl, respondWithList, respondWith, platformHandlers, respondWithError, buildUser } from "@/test/platform";
import { renderAt } from "@/test/render";
import { parseLimits, formatLimits } from "./limits-fields";

test("limits stand beside what is used of them, and a budget warns at 80 %", async () => {
  renderAt("/settings");
  const gpus = await screen.findByRole("meter", { name: "占用的 GPU" });
  expect(gpus.getAttribute("aria-valuetext")).toBe("6 / 8");
  expect(screen.getByText("其中 2 个是借用的，可能被收回")).toBeTruthy();
  expect(screen.getByRole("meter", { name: "本月预算" }).getAttribute("aria-valuetext")).toBe("¥850.00 / ¥1,000.00");
  expect(screen.getByText("已用 85%")).toBeTruthy();
  expect(screen.getByText("3（不限）")).toBeTruthy();
  expect(screen.queryByRole("button", { name: "修改配额" })).toBeNull();
});

test("an administrator changes limits, and what is wrong stands at its field", async () => {
  const sent: unknown[] = [];
  platformHandlers.use(
    http.get(apiUrl("/projects/:id/limits"), () => respondWith({ ...limits, mayChange: true })),
    http.put(apiUrl("/projects/project-1/limits"), async ({ request }) => {
      sent.push(await request.json());
      return sent.length === 1
        ? respondWithError(400, "INVALID_REQUEST", "有误", [
            { field: "mostGpus", error: "X", message: "要是整数", hint: "" },
          ])
        : respondWith(limits);
    }),
  );
  renderAt("/settings");
  await userEvent.click(await screen.findByRole("button", { name: "修改配额" }));
  const dialog = await screen.findByRole("dialog");
  const most = within(dialog).getByLabelText("最多 GPU", { selector: "[name=mostGpus]" });
  await userEvent.clear(most);
  await userEvent.type(most, "many");
  await userEvent.click(within(dialog).getByRole("checkbox", { name: "高" }));
  await userEvent.click(within(dialog).getByRole("button", { name: "保存" }));
  await within(dialog).findByText("要是整数");
  await userEvent.clear(most);
  await userEvent.click(within(dialog).getByRole("button", { name: "保存" }));
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  expect(sent[0]).toMatchObject({ mostGpus: "many", priorities: ["low", "normal", "high"], longestRunSeconds: 7200 });
  expect(sent[1]).toMatchObject({ mostGpus: null, guaranteedGpus: 4, budget: 1000, atBudget: "refuse" });
});

test("a maintainer gives a member limits of their own, and takes them back", async () => {
  const sent: unknown[] = [];
  const none = { mostTasks: null, gpuHours: null, maxEnvironments: null, maxEnvironmentGpus: null };
  const bob = { username: "bob", mostGpus: 4, ...none, own: true };
  platformHandlers.use(
    http.get(apiUrl("/auth/me"), () => respondWith(buildUser("maintainer"))),
    http.get(apiUrl("/projects/:id/limits/users"), () =>
      respondWithList({ ...bob, use: { gpus: 2, tasks: 1, gpuHours: 5 } }),
    ),
    http.put(apiUrl("/projects/project-1/limits/users/bob"), async ({ request }) => {
      sent.push(await request.json());
      return respondWith(bob);
    }),
    http.delete(apiUrl("/projects/project-1/limits/users/bob"), () => {
      sent.push("deleted");
      return respondWith(null);
    }),
  );
  renderAt("/settings");
  await userEvent.click(await screen.findByText("成员的配额与用量"));
  await userEvent.click(await screen.findByRole("button", { name: "修改配额：bob" }));
  const dialog = await screen.findByRole("dialog");
  await userEvent.type(within(dialog).getByLabelText("运行的任务"), "2");
  await userEvent.click(within(dialog).getByRole("button", { name: "保存" }));
  await waitFor(() => expect(sent).toEqual([{ ...none, mostGpus: 4, mostTasks: 2 }]));
  await userEvent.click(await screen.findByRole("button", { name: "恢复默认：bob" }));
  await waitFor(() => expect(sent[1]).toBe("deleted"));
});

test("limits go through the form unchanged", () => {
  expect(limits).toMatchObject(parseLimits(formatLimits(limits)));
});

import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { Grant } from "@/api/oauth";
import { apiUrl, platformHandlers, respondWith, respondWithList } from "@/test/platform";
import { renderAt } from "@/test/render";

const grant: Grant = {
  id: "grant-1",
  client: "Assistant",
  scopes: ["tasks:read", "runs:read"],
  projects: ["project-1"],
  createdAt: "2026-11-01T00:00:00Z",
  refreshedAt: null,
  expiresAt: "2026-12-01T00:00:00Z",
  lastUsedAt: "2026-11-02T00:00:00Z",
  lastUsedFrom: "192.0.2.7",
};

test("a program shows what it may do and loses its access after a question", async () => {
  const ended: string[] = [];
  platformHandlers.use(
    http.get(apiUrl("/oauth/grants"), () => respondWithList(...(ended.length > 0 ? [] : [grant]))),
    http.delete(apiUrl("/oauth/grants/:id"), ({ params }) => {
      ended.push(String(params.id));
      return respondWith(null);
    }),
  );
  renderAt("/settings");
  const list = within(await screen.findByRole("list", { name: "已授权的程序" }));
  const row = (await list.findByText("Assistant")).closest("li");
  expect(row?.textContent).toMatch(/192\.0\.2\.7.*tasks:read runs:read.*默认/);
  await userEvent.click(list.getByRole("button", { name: "撤销" }));
  const dialog = within(await screen.findByRole("alertdialog", { name: "撤销 Assistant 的访问权限？" }));
  expect(ended).toEqual([]);
  await userEvent.click(dialog.getByRole("button", { name: "撤销" }));
  await waitFor(() => expect(ended).toEqual(["grant-1"]));
  await screen.findByText("没有已授权的程序。");
});

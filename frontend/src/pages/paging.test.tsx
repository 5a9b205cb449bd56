import { screen, waitFor } from "@testing-library/react";
import { http } from "msw";
import { expect, test } from "vitest";
import { environment, preflight, task, waiter, worker } from "@/test/fixtures";
import { apiUrl, respondWith, platformHandlers } from "@/test/platform";
import { renderAt } from "@/test/render";

test.each([
  ["/training", "/training-tasks", task, task.taskName],
  ["/environments", "/dev-environments", environment("env-1"), "name-of-env-1"],
  ["/queue", "/queue", waiter(1), waiter(1).taskName],
  ["/workers", "/workers", worker("gn6-0"), "gn6-0"],
  ["/preflight", "/preflights", preflight, preflight.owner],
])("a page of %s that is not there leads to the last one", async (address, path, item, shown) => {
  platformHandlers.use(
    http.get(apiUrl(path), ({ request }) => {
      const page = Number(new URL(request.url).searchParams.get("page") ?? 1);
      return respondWith({ items: page === 1 ? [item] : [], total: 1, page, pageSize: 20 });
    }),
  );
  const at = renderAt(`${address}?page=99`);
  expect((await screen.findAllByText(shown, { exact: false })).length).toBeGreaterThan(0);
  await waitFor(() => expect(at.address()).toBe(`${address}?page=1`));
});

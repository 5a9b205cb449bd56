import { screen, waitFor } from "@testing-library/react";
import { http } from "msw";
import { expect, test } from "vitest";
import { environment, preflight, task, waiter, worker } from "@/test/fixtures";
import { api, ok, platform } from "@/test/platform";
import { visit } from "@/test/render";

test.each([
  ["/training", "/training-tasks", task, task.taskName],
  ["/environments", "/dev-environments", environment("env-1"), "name-of-env-1"],
  ["/queue", "/queue", waiter(1), waiter(1).taskName],
  ["/workers", "/workers", worker("gn6-0"), "gn6-0"],
  ["/preflight", "/preflights", preflight, preflight.owner],
])("a page of %s that is not there leads to the last one", async (address, path, item, shown) => {
  platform.use(
    http.get(api(path), ({ request }) => {
      const page = Number(new URL(request.url).searchParams.get("page") ?? 1);
      return ok({ items: page === 1 ? [item] : [], total: 1, page, pageSize: 20 });
    }),
  );
  const at = visit(`${address}?page=99`);
  expect((await screen.findAllByText(shown, { exact: false })).length).toBeGreaterThan(0);
  await waitFor(() => expect(at.address()).toBe(`${address}?page=1`));
});

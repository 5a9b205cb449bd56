import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { EnvironmentInUse, MemoryHolder } from "@/api/types";
import { apiUrl, respondWith, platformHandlers } from "@/test/platform";
import { renderAt } from "@/test/render";

const kernel = (more: Partial<MemoryHolder> = {}): MemoryHolder => ({
  kind: "kernel",
  id: "k1",
  name: "train.ipynb",
  owner: "li",
  since: 1_767_225_600,
  rssBytes: 2 ** 30,
  gpuBytes: 68 * 2 ** 30,
  mine: false,
  ...more,
});

const held = (...processes: MemoryHolder[]): EnvironmentInUse => ({
  environmentId: "env-1",
  environment: "lab",
  processes,
  gpus: [{ index: 0, name: "A800", totalBytes: 80 * 2 ** 30, freeBytes: 12 * 2 ** 30 }],
});

function previewing(answers: () => { inUse: EnvironmentInUse[]; memoryLooking?: boolean }) {
  const none = { ranks: [], files: [], artifacts: [], command: [], problems: [], warnings: [], summary: null };
  platformHandlers.use(
    http.post(apiUrl("/training-tasks/preview"), () =>
      respondWith({ ...none, proposal: null, packages: null, memoryLooking: false, ...answers() }),
    ),
  );
}

test("who holds how much is said, what is left beside them, and its owner can be asked", async () => {
  let request = 0;
  previewing(() => ({ inUse: [held(kernel())] }));
  platformHandlers.use(
    http.post(apiUrl("/dev-environments/env-1/ask-owner"), () => {
      request++;
      return respondWith(null);
    }),
  );
  renderAt("/training/create?environments=env-1");
  await screen.findByText("train.ipynb");
  expect(screen.getByText(/内核 · li · .* · GPU 显存 68 GiB · 内存 1 GiB/)).toBeTruthy();
  expect(screen.getByText("GPU 0：与它们共用时，训练还可用 12 GiB（共 80 GiB）")).toBeTruthy();
  expect(screen.queryByRole("button", { name: "停止我的内核" })).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "请所有者释放" }));
  await waitFor(() => expect(request).toBe(1));
});

test("one's own kernel is stopped after a question, and the answer changes", async () => {
  let isEnded = false;
  previewing(() => ({ inUse: isEnded ? [] : [held(kernel({ mine: true }))] }));
  platformHandlers.use(
    http.post(apiUrl("/dev-environments/env-1/kernels/k1/end"), () => {
      isEnded = true;
      return respondWith(null);
    }),
  );
  renderAt("/training/create?environments=env-1");
  await userEvent.click(await screen.findByRole("button", { name: "停止我的内核" }));
  expect(isEnded).toBe(false);
  await userEvent.click(within(await screen.findByRole("alertdialog")).getByRole("button", { name: "停止我的内核" }));
  await waitFor(() => expect(screen.queryByText("train.ipynb")).toBeNull());
});

test("while an environment is looked into, the answer comes by itself", async () => {
  let looks = 0;
  previewing(() => (looks++ === 0 ? { inUse: [], memoryLooking: true } : { inUse: [held(kernel())] }));
  renderAt("/training/create?environments=env-1");
  await screen.findByText("train.ipynb", undefined, { timeout: 5_000 });
});

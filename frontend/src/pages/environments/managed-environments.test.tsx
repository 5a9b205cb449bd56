import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { EnvironmentTemplate, ManagedEnvironment } from "@/api/managed-environments";
import { appendLogText, MAX_LOG_CHARACTERS, calculateHourlyPrice } from "@/api/managed-environments";
import { environment } from "@/test/fixtures";
import { apiUrl, respondWithList, respondWith, platformHandlers, respondWithError } from "@/test/platform";
import { renderAt } from "@/test/render";
import { buildTemplateBody } from "../environment-templates/fields";
import { buildCreateBody } from "./create-body";

const template: EnvironmentTemplate = {
  id: "template-1",
  name: "PyTorch",
  description: "",
  projectId: null,
  clusterId: null,
  zone: null,
  kind: "jupyter",
  image: "",
  packages: [],
  gpuType: "A100",
  gpuCount: 2,
  emulated: true,
  cpuCores: 4,
  memoryGb: 8,
  sharedMemoryGb: 0,
  diskGb: 0,
  ports: [],
  env: {},
  secretEnv: {},
  startScript: "",
  idleStopMinutes: 60,
  createdBy: "admin",
  createdAt: "2026-11-21T05:00:00Z",
};

const running: ManagedEnvironment = {
  state: "running",
  since: "2026-11-21T05:00:00Z",
  reason: null,
  doing: null,
  wanted: "running",
  allowedActions: ["open", "stop", "keep", "delete"],
  templateId: "template-1",
  templateName: "PyTorch",
  run: 1,
  idleStopMinutes: 60,
  activeAt: null,
  stopsAt: null,
  keepUntil: null,
  taskId: null,
  afterwards: null,
  sharedMemoryGb: 0,
  diskGb: 0,
  doors: [{ name: "tensorboard", port: 6006 }],
  kernels: [{ id: "kernel-1", name: "train.ipynb", busy: true, since: null }],
  connections: 1,
  cost: { gpuHours: 2, amount: 20, currency: "CNY" },
};

const hosted = (over: Partial<ManagedEnvironment> = {}) => ({
  ...environment("env-1"),
  hosted: { ...running, ...over },
});
const shows = (over: Partial<ManagedEnvironment> = {}) =>
  platformHandlers.use(
    http.get(apiUrl("/dev-environments"), () => respondWithList(hosted(over), environment("env-2"))),
    http.get(apiUrl("/dev-environments/env-1"), () => respondWith(hosted(over))),
    http.get(apiUrl("/dev-environments/env-1/life"), () => respondWith({ events: [], runs: [] })),
    http.get(apiUrl("/environment-templates"), () => respondWithList(template)),
    http.get(apiUrl("/prices"), () =>
      respondWith({
        currency: "CNY",
        prices: [{ gpuType: "A100", zoneId: "", zoneName: "", perGpuHour: 10, since: "2026-01-01T00:00:00Z" }],
      }),
    ),
  );

test("a new environment is asked for with what differs from its template, and its price is told", async () => {
  const sent: unknown[] = [];
  shows();
  platformHandlers.use(
    http.post(apiUrl("/dev-environments/make"), async ({ request }) => {
      sent.push([request.headers.get("Idempotency-Key"), await request.json()]);
      return sent.length === 1
        ? respondWithError(400, "INVALID_REQUEST", "有误", [
            { field: "name", error: "X", message: "要有名称", hint: "" },
          ])
        : respondWith(hosted({ state: "creating" }), 201);
    }),
  );
  const page = renderAt("/environments");
  await userEvent.click(await screen.findByRole("button", { name: "新建环境" }));
  const dialog = await screen.findByRole("dialog");
  await within(dialog).findByText("每小时约 ¥20.00");
  const gpus = within(dialog).getByLabelText("GPU 数量");
  await userEvent.clear(gpus);
  await userEvent.type(gpus, "3");
  await within(dialog).findByText("每小时约 ¥30.00");
  await userEvent.click(within(dialog).getByRole("button", { name: "创建" }));
  await within(dialog).findByText("要有名称");
  await userEvent.type(within(dialog).getByLabelText("名称"), "lab");
  await userEvent.click(within(dialog).getByRole("button", { name: "创建" }));
  await waitFor(() => expect(page.address()).toBe("/environments/env-1"));
  const [first, second] = sent as [string, Record<string, unknown>][];
  expect(second?.[1]).toEqual({ templateId: "template-1", name: "lab", projectId: "project-1", gpuCount: 3 });
  expect(first?.[0]).not.toBe(second?.[0]);
});

test("only what the platform allows is offered, and deleting says that the disk goes", async () => {
  const sent: string[] = [];
  shows();
  platformHandlers.use(
    http.delete(apiUrl("/dev-environments/env-1"), () => {
      sent.push("delete");
      return respondWith(hosted({ state: "deleted" }));
    }),
  );
  renderAt("/environments/env-1");
  const open = await screen.findByRole("link", { name: "打开 JupyterLab" });
  expect(open.getAttribute("href")).toBe("/environments/env-1/open");
  expect(screen.getByRole("link", { name: "打开 tensorboard:6006" }).getAttribute("href")).toContain(
    "door=tensorboard",
  );
  expect(screen.queryByRole("button", { name: "启动" })).toBeNull();
  expect(screen.queryByRole("button", { name: "调整规格" })).toBeNull();
  expect(screen.getByText("¥20.00（2 GPU 小时）")).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "停止" }));
  expect(await screen.findByText(/有内核正在计算：train.ipynb/)).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "取消" }));
  await userEvent.click(screen.getByRole("button", { name: "删除" }));
  const confirm = await screen.findByRole("alertdialog");
  expect(within(confirm).getByText(/磁盘和里面所有文件会一起删除/)).toBeTruthy();
  await userEvent.click(within(confirm).getByRole("button", { name: "删除" }));
  await waitFor(() => expect(sent).toEqual(["delete"]));
});

test("one that is about to stop says so and can be kept; one that failed says why", async () => {
  const sent: unknown[] = [];
  shows({ stopsAt: "2026-11-21T06:00:00Z" });
  platformHandlers.use(
    http.post(apiUrl("/dev-environments/env-1/keep"), async ({ request }) => {
      sent.push(await request.json());
      shows({ state: "failed", allowedActions: [], reason: { code: "X", message: "装不上 torch", hint: "换个版本" } });
      return respondWith(hosted());
    }),
  );
  renderAt("/environments/env-1");
  const warning = await screen.findByText(/将自动停止/);
  await userEvent.click(
    within(warning.closest("[role=alert]") as HTMLElement).getByRole("button", { name: "再保留 2 小时" }),
  );
  await waitFor(() => expect(sent).toEqual([{ hours: 2 }]));
  expect((await screen.findAllByText("装不上 torch")).length).toBeGreaterThan(0);
  expect(screen.queryByRole("button", { name: "删除" })).toBeNull();
});

test("one that was registered by hand has no life of its own", async () => {
  shows();
  renderAt("/environments/env-2");
  await screen.findByRole("heading", { name: /name-of-env-2/ });
  expect(screen.queryByRole("tab", { name: "终端" })).toBeNull();
  expect(screen.queryByText("内核")).toBeNull();
});

test("what differs from the template is sent, and what is no number as it was typed", () => {
  const texts = {
    name: "lab",
    projectId: "p",
    zone: "zone-a",
    clusterId: "",
    host: "",
    gpuType: "A100",
    gpuCount: "2",
  };
  expect(buildCreateBody({ ...texts, cpuCores: "many", idleStopMinutes: "" }, template)).toEqual({
    templateId: "template-1",
    name: "lab",
    projectId: "p",
    zone: "zone-a",
    cpuCores: "many",
    idleStopMinutes: null,
  });
});

test("a template's rows become ports and variables", () => {
  const body = buildTemplateBody({
    name: "x",
    packages: "torch\n\n numpy ",
    ports: '[["tensorboard ","6006"],["api","no"]]',
    env: '[["A","1"]]',
    secretEnv: "[]",
  });
  expect(body).toMatchObject({
    packages: ["torch", "numpy"],
    ports: [
      { name: "tensorboard", port: 6006 },
      { name: "api", port: "no" },
    ],
    env: { A: "1" },
    secretEnv: {},
    idleStopMinutes: null,
  });
});

test("the most exact price counts, and none is none", () => {
  const row = (gpuType: string, zoneId: string, perGpuHour: number) => ({
    gpuType,
    zoneId,
    zoneName: "",
    perGpuHour,
    since: "2026-01-01T00:00:00Z",
  });
  const prices = {
    currency: "CNY",
    prices: [row("", "", 1), row("", "z", 2), row("A100", "", 3), row("A100", "z", 4)],
  };
  const of = (type: string, zone: string) => calculateHourlyPrice(prices, type, zone, 2)?.amount;
  expect([of("A100", "z"), of("A100", "y"), of("H100", "z"), of("H100", "y")]).toEqual([8, 6, 4, 2]);
  expect(calculateHourlyPrice({ ...prices, prices: [] }, "A100", "z", 2)).toBeNull();
  expect(calculateHourlyPrice(prices, "A100", "z", 0)).toBeNull();
});

test("of a long log the newest is kept, from the beginning of a line", () => {
  const log = appendLogText(
    { text: "", cursor: null, cut: false },
    "old\n" + "x".repeat(MAX_LOG_CHARACTERS - 2) + "\nnew",
    9,
  );
  expect([log.text, log.cursor, log.cut]).toEqual(["new", 9, true]);
});

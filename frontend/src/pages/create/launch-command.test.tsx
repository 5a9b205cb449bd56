import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http } from "msw";
import { expect, test } from "vitest";
import type { LaunchCommand } from "@/api/types";
import { apiUrl, platformHandlers, respondWith, respondWithError } from "@/test/platform";
import { renderAt } from "@/test/render";
import { buildRequest, EMPTY_DRAFT } from "./draft";
import { applyLaunchCommand, formatEntrypoint } from "./launch-command";

const found: LaunchCommand = {
  entrypoint: { script: "train.py", args: ["--text", "a b"], processes: "gpu" },
  asIs: { command: ["torchrun", "--nproc_per_node=2", "train.py", "--text", "a b"], processes: "node" },
  env: { A: "1" },
  launcher: "torchrun",
  framework: "",
  gpusPerNode: 2,
  nodes: null,
  maxRestarts: 4,
  notes: [{ code: "COMMAND_COUNT_CHOSEN", message: "--nproc_per_node=2：由所选环境决定。", hint: "" }],
  unclear: [],
};

const send = (patch: ReturnType<typeof applyLaunchCommand>) => buildRequest({ ...EMPTY_DRAFT, ...patch }, []);

test("an accepted command becomes the entry point, its variables and restarts", () => {
  const request = send(applyLaunchCommand({ ...EMPTY_DRAFT, env: "A=0\nB=2" }, found));
  expect(request.entrypoint).toEqual({ script: "train.py", args: ["--text", "a b"] });
  expect(request.env).toEqual({ A: "1", B: "2" });
  expect(request.maxRestarts).toBe(4);
});

test("a module, and a command as it is, are sent as such", () => {
  const module = send(
    applyLaunchCommand(EMPTY_DRAFT, { ...found, entrypoint: { module: "pkg.train", processes: "node" } }),
  );
  expect(module.entrypoint).toEqual({ module: "pkg.train", args: [], processes: "node" });
  const command = send(applyLaunchCommand(EMPTY_DRAFT, found, found.asIs));
  expect(command.entrypoint).toEqual({ ...found.asIs, args: [] });
});

test("an entry point is shown as it would be typed", () => {
  expect(formatEntrypoint(found.entrypoint)).toBe("python train.py --text 'a b'");
  expect(formatEntrypoint({ module: "pkg.train", args: ["it's"], processes: "gpu" })).toBe(
    "python -m pkg.train 'it'\\''s'",
  );
});

async function paste(text: string) {
  renderAt("/training/create");
  await userEvent.click(await screen.findByRole("radio", { name: /脚本/ }));
  await userEvent.type(await screen.findByLabelText("粘贴启动命令"), text);
  await userEvent.click(screen.getByRole("button", { name: "解释命令" }));
}

test("a pasted command is explained, and one click fills in the fields", async () => {
  platformHandlers.use(http.post(apiUrl("/training-tasks/launch-command"), () => respondWith(found)));
  await paste("torchrun train.py");
  const meaning = await screen.findByRole("region", { name: "命令的含义" });
  expect(within(meaning).getByText("python train.py --text 'a b'")).toBeTruthy();
  expect(within(meaning).getByText("--nproc_per_node=2：由所选环境决定。")).toBeTruthy();
  await userEvent.click(within(meaning).getByRole("button", { name: "采用" }));
  expect(screen.getByLabelText<HTMLInputElement>("训练脚本").value).toBe("train.py");
  expect(screen.getByLabelText<HTMLTextAreaElement>("脚本参数").value).toBe("--text\na b");
  expect(screen.queryByRole("region", { name: "命令的含义" })).toBeNull();
});

test("what is no command says why", async () => {
  const refused = respondWithError(400, "COMMAND_TEXT_STARTS_NOTHING", "该文本不会启动训练。");
  platformHandlers.use(http.post(apiUrl("/training-tasks/launch-command"), () => refused));
  await paste("ls");
  expect(await screen.findByText(/该文本不会启动训练/)).toBeTruthy();
});

test("an argument that the script declares is added by one click", async () => {
  const none = { ranks: [], files: [], artifacts: [], command: [], problems: [], inUse: [], summary: null };
  platformHandlers.use(
    http.post(apiUrl("/training-tasks/preview"), async ({ request }) => {
      const body = (await request.json()) as { entrypoint?: { args: string[] } };
      const missing = body.entrypoint?.args.length ? [] : ["--local_rank={local_rank}"];
      return respondWith({ ...none, warnings: [], proposal: null, missingArguments: missing });
    }),
  );
  renderAt("/training/create");
  await userEvent.click(await screen.findByRole("radio", { name: /脚本/ }));
  await userEvent.click(await screen.findByRole("button", { name: "添加 --local_rank={local_rank}" }));
  expect(screen.getByLabelText<HTMLTextAreaElement>("脚本参数").value).toBe("--local_rank={local_rank}");
  await waitFor(() => expect(screen.queryByRole("button", { name: /^添加 --local_rank/ })).toBeNull());
});

test("one process per node, its command and how it resumes are sent, as proposed or as typed", async () => {
  const none = { ranks: [], files: [], artifacts: [], command: [], problems: [], inUse: [], summary: null };
  const resume = { args: ["--resume", "{path}"], env: {}, itself: false, message: "脚本有参数 --resume。" };
  let body: { entrypoint?: object } = {};
  platformHandlers.use(
    http.post(apiUrl("/training-tasks/preview"), async ({ request }) => {
      body = (await request.json()) as typeof body;
      return respondWith({ ...none, warnings: [], proposal: null, missingArguments: [], resume });
    }),
  );
  renderAt("/training/create");
  await userEvent.click(await screen.findByRole("radio", { name: /脚本/ }));
  await userEvent.click(await screen.findByRole("radio", { name: /^每个节点一个/ }));
  await userEvent.type(screen.getByLabelText("命令"), "torchrun 'my train.py'");
  expect(await screen.findByText("脚本有参数 --resume。")).toBeTruthy();
  const proposal = screen.getByText("脚本有参数 --resume。").closest("div") as HTMLElement;
  await userEvent.click(within(proposal).getByRole("button", { name: "采用" }));
  expect(screen.getByLabelText<HTMLTextAreaElement>("参数，每行一个").value).toBe("--resume\n{path}");
  const entrypoint = { command: ["torchrun", "my train.py"], args: [], processes: "node" };
  await waitFor(() => expect(body.entrypoint).toEqual({ ...entrypoint, resume: { args: ["--resume", "{path}"] } }));
  await userEvent.click(screen.getByRole("checkbox", { name: "脚本自行查找最新的检查点" }));
  await waitFor(() => expect(body.entrypoint).toEqual({ ...entrypoint, resume: { itself: true } }));
});

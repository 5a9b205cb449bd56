import { expect, test } from "vitest";
import type { CreateRequest } from "@/api/types";
import { quoteForShell } from "@/lib/shell";
import { formatCommand, buildRecipes, formatYaml } from "./request-recipes";

const request = {
  taskName: "it's 第一个",
  datasetId: "dataset-001",
  datasetVersionId: "version-001",
  modelId: "model-001",
  launchMode: "existing",
  distributedConfig: {
    enabled: true,
    nodeIds: ["env-001", "env-003"],
    masterNode: "env-001",
    framework: "deepspeed",
    strategy: { dataParallel: 2 },
    elastic: { maxNodes: 2 },
  },
  spareEnvironmentIds: ["env-005"],
  entrypoint: { script: "train.py", args: ["--name", "two words"] },
  hyperparameters: { totalSteps: 100, dtype: "bf16", tag: "1e3" },
  env: { NCCL_DEBUG: "INFO" },
  secretEnv: { WANDB_API_KEY: "wandb" },
  tags: ["baseline", "wiki v2"],
  resumeFrom: null,
} as unknown as CreateRequest;

test("the command says all that the request says, one word each for the shell", () => {
  expect(formatCommand(request).split(" \\\n  ")).toEqual([
    "fermi submit",
    String.raw`--name 'it'\''s 第一个'`,
    "--dataset dataset-001:version-001",
    "--model model-001",
    "--env env-001",
    "--env env-003",
    "--spare env-005",
    "--master env-001",
    "--framework deepspeed",
    "--strategy dataParallel=2",
    "--elastic 1:2",
    "--tag baseline",
    "--tag 'wiki v2'",
    "--hp totalSteps=100",
    "--hp dtype=bf16",
    `--hp 'tag="1e3"'`,
    "--set-env NCCL_DEBUG=INFO",
    "--secret-env WANDB_API_KEY=wandb",
    "--script train.py",
    "-- --name 'two words'\n",
  ]);
});

test("a module is named as a module", () => {
  const command = formatCommand({ ...request, entrypoint: { module: "pkg.train", args: ["--epochs", "3"] } });
  expect(command).toContain("--module pkg.train \\\n  -- --epochs 3");
});

test("a command is everything behind the dashes", () => {
  const entrypoint = {
    command: ["torchrun", "--nproc_per_node=2", "my train.py"],
    args: [],
    processes: "node" as const,
  };
  expect(formatCommand({ ...request, entrypoint })).toContain(
    "--processes node \\\n  --command \\\n  -- torchrun --nproc_per_node=2 'my train.py'\n",
  );
});

test("a script that reads neither dataset nor model says so: the command would choose the only ones", () => {
  const command = formatCommand({ ...request, datasetId: null, datasetVersionId: null, modelId: null });
  expect(command).toContain("--dataset none \\\n  --model none");
});

test("curl sends exactly the request", () => {
  const curl = buildRecipes(request, "http://fermi.test").find(({ name }) => name === "curl.sh")?.content ?? "";
  const body = /<<'END'\n([\s\S]*)\nEND\n$/.exec(curl)?.[1] ?? "";
  expect(JSON.parse(body)).toEqual(request);
});

test("YAML keeps types apart: what looks like a number or a word of the language is quoted", () => {
  expect(
    formatYaml({ a: "1", b: 1, c: "yes", d: "a: b", e: [], f: {}, g: [{ h: 1, i: 2 }], j: null, k: "北京 A" }),
  ).toBe(
    [
      'a: "1"',
      "b: 1",
      'c: "yes"',
      'd: "a: b"',
      "e: []",
      "f: {}",
      "g:",
      "  - h: 1",
      "    i: 2",
      "j: null",
      "k: 北京 A",
    ].join("\n"),
  );
});

test("a word that a shell would take apart is quoted, a plain one is not", () => {
  expect([quoteForShell("a/b-c=1"), quoteForShell("a b"), quoteForShell("$HOME"), quoteForShell("")]).toEqual([
    "a/b-c=1",
    "'a b'",
    "'$HOME'",
    "''",
  ]);
});

import { beforeEach, describe, expect, test } from "vitest";
import { getChoices, REQUEST, type RequestField } from "@/api/request-schema";
import type { CreateRequest } from "@/api/types";
import { dataset, environment, framework } from "@/test/fixtures";
import { sumEnvironments } from "./aggregate";
import { NO_FILTER, filterEnvironments, NO_GPU, listFilterOptions, sortEnvironments } from "./environment-filter";
import {
  type Draft,
  buildDraft,
  EMPTY_DRAFT,
  buildRequest,
  toggleEnvironment,
  updateTuning,
  getTuning,
  setDraftField,
} from "./draft";
import { formatRange, listStrategyFields } from "./options";
import { openDraftStorage } from "./draft-storage";
import { parseModelSize } from "./model-size";
import { groupByField, getProblemText } from "./problems";
import { findUsableVersion } from "./default-choices";

const tick = (...ids: string[]) => ids.reduce(toggleEnvironment, EMPTY_DRAFT);

describe("the master", () => {
  test("is the first that was ticked", () => {
    expect(tick("env-3", "env-1")).toMatchObject({ selected: ["env-3", "env-1"], master: "env-3" });
  });

  test("is chosen again when it is unticked, and nobody when nothing is left", () => {
    expect(tick("env-3", "env-1", "env-3").master).toBe("env-1");
    expect(tick("env-3", "env-3").master).toBe("");
  });

  test("stays as chosen by hand while others come and go", () => {
    const draft = { ...tick("env-1", "env-2", "env-3"), master: "env-3" };
    expect(toggleEnvironment(draft, "env-1").master).toBe("env-3");
  });
});

describe("a clone", () => {
  const base = { taskName: "t", datasetId: "d", datasetVersionId: "v", modelId: "m" };

  test.each([
    [{ git: { url: "https://git.example.org/a.git", revision: "v2", secret: "token" }, requirements: "off" }],
    [{ snapshot: "5b0c41e0a3f2" }],
    [{ environment: "master", path: "src" }],
    [{ snapshot: "5b0c41e0a3f2", environment: "master", path: "src" }],
    [{ snapshot: "5b0c41e0a3f2", git: { url: "https://git.example.org/a.git", revision: "v2" } }],
  ] as CreateRequest["code"][][])("brings the code of the first: %o", (code) => {
    const request = { ...base, environmentIds: ["env-1"], code } as CreateRequest;
    expect(buildRequest(buildDraft(request), []).code).toEqual(code);
  });

  test("says where its snapshot came from as long as it is that snapshot and that environment", () => {
    const code = { snapshot: "5b0c41e0a3f2", environment: "master", path: "src" } as const;
    const draft = buildDraft({ ...base, environmentIds: ["env-1"], entrypoint: { script: "train.py" }, code });
    const other = { ...draft, code: { ...draft.code, snapshot: "8c1c" } };
    expect(buildRequest(other, []).code).toEqual({ snapshot: "8c1c" });
    expect(buildRequest(toggleEnvironment(toggleEnvironment(draft, "env-1"), "env-2"), []).code).toEqual({
      snapshot: "5b0c41e0a3f2",
    });
    const anew = { ...draft, code: { ...draft.code, source: "environment" as const } };
    expect(buildRequest(anew, []).code).toEqual({ environment: "master", path: "src" });
  });

  /** A request with a value in each field that the platform knows, as far as they can be given together. */
  const filled = (rules: Record<string, RequestField>, left: string[]): Record<string, unknown> =>
    Object.fromEntries(
      Object.entries(rules)
        .filter(([name]) => !left.includes(name))
        .map(([name, rule]) => [name, sample(name, rule, left)]),
    );
  const sample = (name: string, rule: RequestField, left: string[]): unknown => {
    const type = Array.isArray(rule.type) ? rule.type[0] : rule.type;
    const choices = getChoices(rule);
    if (choices) return choices.find((each) => each !== rule.default) ?? choices[0];
    if (rule.properties) return filled(rule.properties, left);
    if (type === "boolean") return true;
    if (type === "integer" || type === "number") return 7;
    if (type === "array") return [`${name}-1`, `${name}-2`];
    if (type === "object") return { name: "value" };
    return type === "string" ? "text" : sample(name, rule.anyOf?.find((each) => each.type !== "null") ?? {}, left);
  };
  const together = ["newEnvironments", "select", "environmentIds", "git", "launchMode"];

  test.each([
    ["of environments by name", [...together, "module"]],
    ["of capacity", [...together, "nodeIds", "masterNode", "module"].filter((name) => name !== "select")],
    ["of a module, with an unknown field of a later release", [...together, "hyperparameters", "script"]],
  ])("keeps every field of a request %s", (_, left) => {
    const request = {
      ...filled(REQUEST, left),
      launchMode: "existing",
      later: { one: [1] },
    } as unknown as CreateRequest;
    expect(buildRequest(buildDraft(request), [])).toEqual(request);
  });

  test("keeps what the form does not show, of one environment, too", () => {
    const config = { enabled: true, nodeIds: ["env-1"], masterNode: "env-1", framework: "pytorch-ddp", worldSize: 1 };
    const request = { ...base, launchMode: "existing", distributedConfig: config } as CreateRequest;
    expect(buildRequest(buildDraft(request), [])).toEqual(request);
  });

  test.each([
    ["auto", undefined],
    ["pod", "beside"],
    ["environment", "environment"],
  ] as const)("runs where the first was to run: %s", (runIn, kept) => {
    const request: CreateRequest = { ...base, environmentIds: ["env-1"], distributedConfig: { enabled: true, runIn } };
    expect(buildRequest(buildDraft(request), []).distributedConfig?.runIn).toBe(kept);
  });

  test("makes its environments where the first had them", () => {
    const newEnvironments = { template: "a100", count: 3, afterwards: "stop", clusterId: "c", zone: "z" } as const;
    const request = { ...base, launchMode: "new", newEnvironments } as CreateRequest;
    expect(buildRequest(buildDraft(request), []).newEnvironments).toEqual(newEnvironments);
  });
});

test.each([
  ["onCrashLoop", "restart", { onCrashLoop: "restart" }],
  ["maxRunSeconds", "3600", { maxRunSeconds: 3600 }],
  ["preemptible", "true", { preemptible: true }],
  ["distributedConfig.runIn", "beside", { distributedConfig: { runIn: "beside" } }],
  ["hyperparameters.learningRate", "0.001", { hyperparameters: { learningRate: 0.001 } }],
  [
    "distributedConfig.select.gpuTypes",
    "A100, H100",
    { distributedConfig: { select: { gpuTypes: ["A100", "H100"] } } },
  ],
])("a proposed value of %s is set in the form", (field, to, expected) => {
  const select = { nodes: 2, gpuTypes: ["V100"] };
  const draft = buildDraft({ taskName: "t", distributedConfig: { enabled: true, select } });
  expect(buildRequest(setDraftField(draft, field, to), [])).toMatchObject(expected);
  expect(setDraftField(draft, "noSuchField", to)).toEqual(draft);
});

describe("the request", () => {
  const rules = {
    sharding: { enum: ["auto", "hybrid"] },
    shardSize: { type: "integer" },
    cpuOffload: { type: "boolean" },
    config: { type: "object" },
  };
  const tunable = { ...framework, options: { properties: rules } };
  const named: Draft = { ...EMPTY_DRAFT, taskName: "t", datasetId: "d", datasetVersionId: "v", modelId: "m" };

  test("of one environment has no distributed part", () => {
    const body = buildRequest(toggleEnvironment(named, "env-1"), []);
    expect(body.environmentIds).toEqual(["env-1"]);
    expect(body).not.toHaveProperty("distributedConfig");
  });

  test("of several names nodes, master and framework", () => {
    const body = buildRequest(["env-1", "env-3"].reduce(toggleEnvironment, named), []);
    expect(body).not.toHaveProperty("environmentIds");
    expect(body.distributedConfig).toEqual({
      enabled: true,
      nodeIds: ["env-1", "env-3"],
      masterNode: "env-1",
      framework: "pytorch-ddp",
    });
  });

  test("leaves out what was left empty, and sends words as words for the server to judge", () => {
    const draft = {
      ...toggleEnvironment(named, "env-1"),
      hyperparameters: { batchSize: "16", totalSteps: "", dtype: "auto" },
    };
    expect(buildRequest(draft, []).hyperparameters).toEqual({ batchSize: 16, dtype: "auto" });
    expect(buildRequest(draft, [])).not.toHaveProperty("env");
  });

  test("a range of nodes makes a task elastic, and a clone of it is the same form", () => {
    const two = ["env-1", "env-3"].reduce(toggleEnvironment, { ...named, minNodes: "1", maxNodes: "" });
    const body = buildRequest(two, []);
    expect(body.distributedConfig?.elastic).toEqual({ minNodes: 1 });
    expect(buildDraft(body)).toMatchObject({ minNodes: "1", maxNodes: "" });
    expect(buildRequest({ ...two, minNodes: "", maxNodes: "" }, []).distributedConfig).not.toHaveProperty("elastic");
  });

  test("of one environment names a framework that is not the usual one", () => {
    const body = buildRequest({ ...toggleEnvironment(named, "env-1"), framework: "deepspeed" }, []);
    expect(body.distributedConfig).toMatchObject({ nodeIds: ["env-1"], framework: "deepspeed" });
  });

  test("reads an option by its schema, keeps what cannot be read, and forgets none when frameworks change", () => {
    const draft = ["env-1", "env-2"].reduce(toggleEnvironment, named);
    const typed = { shardSize: "2x", cpuOffload: "true", config: "{not json", sharding: "" };
    const filled = { ...draft, ...updateTuning(draft, { options: typed }) };
    expect(buildRequest(filled, [tunable]).distributedConfig?.options).toEqual({
      shardSize: "2x",
      cpuOffload: true,
      config: "{not json",
    });
    const other = { ...filled, framework: "deepspeed" };
    expect(buildRequest(other, [tunable]).distributedConfig).not.toHaveProperty("options");
    expect(getTuning({ ...other, framework: "pytorch-ddp" }).options).toEqual(typed);
  });

  test("splits environment variables at the first equals sign", () => {
    expect(buildRequest({ ...named, env: "NCCL_DEBUG=INFO\n\nOPTS=a=b" }, []).env).toEqual({
      NCCL_DEBUG: "INFO",
      OPTS: "a=b",
    });
  });

  test("of a script of one's own names neither dataset nor model where none was chosen; without a script both are asked for", () => {
    const own = toggleEnvironment(
      { ...EMPTY_DRAFT, taskName: "t", what: "script", script: "train.py" } as const,
      "env-1",
    );
    const body = buildRequest(own, []);
    expect(body).toMatchObject({ datasetId: null, datasetVersionId: null, modelId: null });
    expect(buildRequest(buildDraft(body), [])).toEqual(body);
    const model = buildRequest({ ...own, what: "model" }, []);
    expect(model).toMatchObject({ datasetId: "", modelId: "" });
    expect(model).not.toHaveProperty("entrypoint");
    expect(buildRequest({ ...own, datasetId: "d", datasetVersionId: "v" }, [])).toMatchObject({
      datasetId: "d",
      datasetVersionId: "v",
      modelId: null,
    });
  });

  test("has times in the API's units, however they are typed; what is none goes out as it is, to be refused", () => {
    const plain = {
      graceSeconds: "90",
      hangSeconds: "1h30m",
      maxRunSeconds: "2 天",
      drillMinutes: "90s",
      minRunSeconds: "5x",
    };
    expect(buildRequest({ ...named, plain }, [])).toMatchObject({
      graceSeconds: 90,
      hangSeconds: 5400,
      maxRunSeconds: 172_800,
      drillMinutes: 1.5,
      minRunSeconds: "5x",
    });
  });

  test("of a cloned task is what was cloned", () => {
    const request: CreateRequest = {
      taskName: "gpt3-pretraining",
      datasetId: "dataset-001",
      datasetVersionId: "version-001",
      modelId: "model-001",
      launchMode: "existing",
      distributedConfig: {
        enabled: true,
        nodeIds: ["env-001", "env-003"],
        masterNode: "env-003",
        framework: "pytorch-ddp",
        masterPort: 29500,
        backend: "gloo",
        strategy: { dataParallel: 2 },
        options: { sharding: "hybrid", shardSize: 2, cpuOffload: false, config: { fp16: { loss_scale: 0 } } },
      },
      spareEnvironmentIds: ["env-004", "env-005"],
      entrypoint: { script: "train.py", args: ["--epochs", "3"] },
      hyperparameters: { batchSize: 8, dtype: "auto", learningRate: 0.0001 },
      env: { NCCL_DEBUG: "INFO" },
      secretEnv: { WANDB_API_KEY: "wandb" },
      maxRestarts: 3,
      graceSeconds: 120,
      priority: "high",
      resumeFrom: "checkpoints/task-1/step-50",
    };
    expect(buildRequest(buildDraft(request), [tunable])).toEqual(request);
    const ofModule = { ...request, entrypoint: { module: "pkg.train", args: ["--epochs", "3"] } };
    expect(buildDraft(ofModule).script).toBe("-m pkg.train");
    expect(buildRequest(buildDraft(ofModule), [tunable])).toEqual(ofModule);
    const ofCommand = { ...request, entrypoint: { command: ["torchrun", "train.py"], args: [], processes: "node" } };
    expect(buildRequest(buildDraft(ofCommand as CreateRequest), [tunable])).toEqual(ofCommand);
    const resume = { args: ["--resume", "{path}"], env: { FROM: "{path}" } };
    const ofResume = { ...request, entrypoint: { script: "train.py", args: [], resume } };
    expect(buildRequest(buildDraft(ofResume), [tunable])).toEqual(ofResume);
    const ofModel: CreateRequest = { ...request, code: { snapshot: "8c1c8c1c8c1c8c1c" } };
    delete ofModel.entrypoint;
    expect(buildDraft(ofModel).what).toBe("model");
    expect(buildRequest(buildDraft(ofModel), [tunable])).toEqual(ofModel);
  });

  test("of capacity names no environment, and is cloned as it was asked for", () => {
    const select = {
      nodes: 2,
      gpusPerNode: 4,
      gpuTypes: ["A100"],
      sameZone: true,
      labels: { rack: "r1" },
      exclude: ["env-9"],
    };
    const request = {
      taskName: "t",
      datasetId: "d",
      datasetVersionId: "v",
      modelId: "m",
      launchMode: "existing",
      projectId: "project-1",
      preemptible: true,
      distributedConfig: { enabled: true, select, framework: "pytorch-ddp" },
    };
    expect(buildRequest(buildDraft(request), [])).toEqual(request);
  });

  test("of a priority that was a number says its class", () => {
    const classes = [-5, 0, 7, 100].map((priority) => buildDraft({ taskName: "t", priority }).plain.priority);
    expect(classes).toEqual(["low", undefined, "high", "urgent"]);
  });
});

test("a version that is ready is chosen first, one being prepared will do, one that failed will not", () => {
  const [version] = dataset.versions;
  const of = (...states: ("ready" | "preparing" | "failed")[]) =>
    findUsableVersion({
      ...dataset,
      versions: version ? states.map((status) => ({ ...version, id: status, status })) : [],
    });
  expect(of("failed", "preparing", "ready")).toBe("ready");
  expect(of("failed", "preparing")).toBe("preparing");
  expect(of("failed")).toBeUndefined();
});

test("the choice adds up; an environment without GPUs is one process", () => {
  const chosen = [
    environment("a", { gpuCount: 4, gpuType: "A100" }),
    environment("b", { gpuCount: 2, gpuType: "A100", zone: { id: "z", name: "上海可用区A" } }),
    environment("c", { gpuCount: 0, gpuType: "" }),
  ];
  expect(sumEnvironments(chosen)).toEqual({
    nodeCount: 3,
    totalGpus: 6,
    worldSize: 7,
    totalCpus: chosen.reduce((sum, { cpuCores }) => sum + cpuCores, 0),
    totalMemoryGb: chosen.reduce((sum, { memoryGb }) => sum + memoryGb, 0),
    gpuTypes: ["A100"],
    zones: ["北京可用区A", "上海可用区A"],
    crossZone: true,
    isDistributed: true,
  });
  expect(sumEnvironments([])).toMatchObject({ nodeCount: 0, worldSize: 0, crossZone: false, isDistributed: false });
});

test("environments are found, filtered and sorted, with those that cannot be ticked last", () => {
  const all = [
    environment("a", { gpuCount: 8, selectable: false, status: "stopped", uptimeSeconds: null }),
    environment("b", { gpuCount: 2 }),
    environment("d", { gpuCount: 0, gpuType: "", kind: "vscode", uptimeSeconds: 1 }),
    environment("c", { gpuCount: 4, zone: { id: "zone-c", name: "深圳可用区C" } }),
  ];
  const ids = (choice: Partial<Parameters<typeof filterEnvironments>[1]>) =>
    filterEnvironments(sortEnvironments(all, choice.sort ?? "gpuCount"), { ...NO_FILTER, ...choice }).map(
      ({ id }) => id,
    );
  expect(ids({})).toEqual(["c", "b", "d", "a"]);
  expect(ids({ zone: "zone-c" })).toEqual(["c"]);
  expect(ids({ search: "NAME-OF-B" })).toEqual(["b"]);
  expect(ids({ kind: "vscode" })).toEqual(["d"]);
  expect(ids({ gpuType: NO_GPU })).toEqual(["d"]);
  expect(ids({ status: "stopped" })).toEqual(["a"]);
  expect(ids({ sort: "uptime" })).toEqual(["b", "c", "d", "a"]);
});

test("the server's problems find the field, or the environment, that they name", () => {
  const problem = (field: string, message: string) => ({ field, error: "X", message, hint: "" });
  const map = groupByField(
    [
      problem("distributedConfig.nodeIds.1", "stopped"),
      problem("environmentIds", "none"),
      problem("hyperparameters.batchSize", "positive"),
    ],
    ["env-1", "env-2"],
  );
  expect(getProblemText(map, "environments.env-2")).toBe("stopped");
  expect(getProblemText(map, "environments.env-1")).toBeUndefined();
  expect(map.get("environments")?.[0]?.message).toBe("none");
  expect(getProblemText(map, "hyperparameters")).toBe("positive");
});

test("what can be filtered by is what there is", () => {
  const all = [environment("a"), environment("b", { gpuType: "", zone: { id: "z", name: "上海可用区A" } })];
  expect(listFilterOptions(all)).toMatchObject({
    gpuType: [
      [NO_GPU, ""],
      ["A100", "A100"],
    ],
    kind: [["jupyter", "jupyter"]],
  });
  expect(listFilterOptions(all).zone.map(([, name]) => name)).toEqual(["北京可用区A", "上海可用区A"]);
});

test("bounds are told where they say something", () => {
  expect(formatRange({ minimum: 1, maximum: 1024 })).toBe("1 – 1024");
  expect(formatRange({ minimum: 1, maximum: 2 ** 31 })).toBe("≥ 1");
  expect(formatRange({ exclusiveMinimum: 0, maximum: 1 })).toBe("> 0, ≤ 1");
  expect(formatRange({})).toBe("");
});

test("a framework has the degrees of parallelism that it names", () => {
  expect(listStrategyFields({ ...framework, parallelism: ["tensor", "pipeline", "data", "sharded"] })).toEqual([
    "tensorParallel",
    "pipelineParallel",
    "dataParallel",
  ]);
  expect(listStrategyFields({ ...framework, parallelism: ["data", "fsdp"] })).toEqual(["dataParallel", "fsdpParallel"]);
});

test("a model's size is read as people write it", () => {
  const sizes = ["7B", "1.3 b", "350M", "70亿", "1,000,000", "175b", "many", "", "0"];
  expect(sizes.map(parseModelSize)).toEqual([7e9, 1.3e9, 350e6, 7e9, 1e6, 175e9, undefined, undefined, undefined]);
});

describe("a draft", () => {
  beforeEach(() => sessionStorage.clear());

  test("is found again by its owner, at the same address, until it is dropped", () => {
    const store = openDraftStorage("ada", "");
    store.save({ ...EMPTY_DRAFT, taskName: "gpt" });
    expect(store.load()?.taskName).toBe("gpt");
    expect(openDraftStorage("bob", "").load()).toBeUndefined();
    expect(openDraftStorage("ada", "from=task-1").load()).toBeUndefined();
    store.drop();
    expect(store.load()).toBeUndefined();
  });

  test("of an older version is completed, and one that cannot be read is none", () => {
    sessionStorage.setItem("fermi.draft/ada/", JSON.stringify({ taskName: "old" }));
    expect(openDraftStorage("ada", "").load()).toEqual({ ...EMPTY_DRAFT, taskName: "old" });
    sessionStorage.setItem("fermi.draft/ada/", "{");
    expect(openDraftStorage("ada", "").load()).toBeUndefined();
  });
});

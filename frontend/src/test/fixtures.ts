import type { CodeSource } from "@/api/code";
import type { Limits } from "@/api/types";
import type {
  Dataset,
  Drill,
  Environment,
  Framework,
  Metric,
  Model,
  Preflight,
  Task,
  QueuedTask,
  Worker,
  WorkerGroup,
  Zone,
} from "@/api/types";

export function environment(id: string, over: Partial<Environment> = {}): Environment {
  return {
    id,
    name: `name-of-${id}`,
    projectId: "project-1",
    owner: "ada",
    clusterId: "cluster-1",
    backend: "local",
    zone: { id: "zone-a", name: "北京可用区A" },
    kind: "jupyter",
    status: "running",
    cordoned: false,
    selectable: true,
    notSelectableReason: null,
    image: "",
    stack: "pytorch",
    gpuType: "A100",
    gpuCount: 2,
    emulated: true,
    cpuCores: 16,
    memoryGb: 128,
    host: "",
    ip: "192.168.1.10",
    versions: {},
    network: {},
    startedAt: null,
    uptimeSeconds: 3600,
    heldBy: null,
    shared: false,
    warm: null,
    labels: {},
    standby: { isWanted: false, state: "off", memoryBytes: null, until: null, reason: null },
    hosted: null,
    ...over,
  };
}

/** Returns the code of a task that runs files of its nodes. */
export function codeSource(over: Partial<CodeSource> = {}): CodeSource {
  return {
    snapshotId: null,
    kind: "node",
    environment: "",
    path: "",
    url: "",
    revision: "",
    changed: null,
    why: null,
    ...over,
  };
}

export function metric(id: number, step: number, loss: number, over: Partial<Metric> = {}): Metric {
  return {
    id,
    attempt: 1,
    rank: 0,
    step,
    at: new Date(step * 1000).toISOString(),
    values: { loss },
    source: "json",
    ...over,
  };
}

export const task: Task = {
  parameters: [],
  finding: null,
  taskId: "task-1",
  taskName: "first-task",
  status: "running",
  reason: null,
  framework: "pytorch-ddp",
  distributed: false,
  nodeCount: 1,
  totalGpus: 2,
  worldSize: 2,
  masterNode: "env-1",
  projectId: "project-1",
  owner: "ada",
  attempt: 1,
  maxRestarts: 3,
  priority: 0,
  priorityClass: "normal",
  preemptible: false,
  borrowed: false,
  paused: false,
  projectName: "first-project",
  select: null,
  minRunSeconds: 300,
  maxRunSeconds: null,
  createdAt: "2026-11-21T05:00:00Z",
  startedAt: "2026-11-21T05:00:01Z",
  endedAt: null,
  step: 10,
  loss: 2.5,
  lossNotFinite: false,
  datasetId: "dataset-1",
  datasetVersionId: "version-1",
  modelId: "model-1",
  datasetName: "python-stdlib",
  datasetVersionName: "v1",
  modelName: "gpt-small",
  summary: {
    totalCpus: 16,
    totalMemoryGb: 128,
    gpuTypes: ["A100"],
    zones: ["北京可用区A"],
    crossZone: false,
  },
  warnings: [],
  proposal: null,
  batch: {
    perRank: 8,
    dataParallel: 2,
    accumulation: 4,
    effective: 64,
    learningRate: 0.003,
    learningRateScaling: "linear",
    scaledLearningRate: 0.006,
    ownScript: false,
  },
  nodes: [
    {
      nodeRank: 0,
      environmentId: "env-1",
      name: "name-of-env-1",
      zone: "北京可用区A",
      gpuType: "A100",
      processes: 2,
      emulated: true,
      ranks: [0, 1],
      runsIn: null,
    },
  ],
  ranks: [0, 1].map((rank) => ({
    rank,
    localRank: rank,
    nodeRank: 0,
    device: rank,
    state: "running" as const,
    pid: 100 + rank,
    exitCode: null,
    ending: null,
  })),
  attempts: [
    {
      number: 1,
      masterPort: 29500,
      outcome: null,
      failedRank: null,
      resumeFrom: null,
      createdAt: "2026-11-21T05:00:00Z",
      runningAt: "2026-11-21T05:00:01Z",
      endedAt: null,
    },
  ],
  allowedActions: ["stop", "clone"],
  request: {},
  preflightId: null,
  drillId: null,
  elastic: null,
  totalSteps: 100,
};

export const dataset: Dataset = {
  id: "dataset-1",
  name: "Standard library",
  description: "",
  projectId: "project-1",
  createdAt: "2026-11-21T05:00:00Z",
  versions: [
    {
      id: "version-1",
      datasetId: "dataset-1",
      name: "v1",
      status: "ready",
      progress: 1,
      source: "",
      trainTokens: 1,
      validTokens: 1,
      sizeBytes: 1,
      sha256: "",
      error: null,
      createdAt: "2026-11-21T05:00:00Z",
    },
  ],
};

export const model: Model = {
  id: "model-1",
  name: "Small GPT",
  description: "",
  projectId: "project-1",
  recipe: "gpt",
  parameters: 1_000_000,
  defaults: { batchSize: 8 },
  createdAt: "2026-11-21T05:00:00Z",
};

export const framework: Framework = {
  value: "pytorch-ddp",
  aliases: ["ddp"],
  label: "PyTorch DDP",
  description: "数据并行",
  parallelism: ["data"],
  modelSize: { min: 0, max: null },
  options: {},
  available: true,
  clusters: [],
};

export const zone: Zone = { id: "zone-a", name: "北京可用区A", environmentCount: 2, gpuCount: 4 };

export function worker(id: string, over: Partial<Worker> = {}): Worker {
  const [node = "", number] = id.split("-");
  return {
    id,
    node,
    number: Number(number),
    gpu: Number(number),
    status: "online",
    group: null,
    rank: null,
    localRank: null,
    nodeRank: null,
    worldSize: null,
    lastHeartbeatAt: "2026-11-21T05:00:00Z",
    heartbeatAgeSeconds: 3,
    generation: 1,
    projectId: "project-1",
    process: { state: "idle", pid: null, exitCode: null, taskId: null, attempt: null },
    usage: {
      gpuUtilization: null,
      gpuMemoryUsedMb: null,
      gpuMemoryTotalMb: null,
      cpuPercent: null,
      memoryUsedMb: null,
    },
    environmentId: "env-1",
    host: node,
    ip: "192.168.1.10",
    version: "1.0",
    allowedActions: ["move", "delete"],
    ...over,
  };
}

/** The first table of the requirements. */
export const group: WorkerGroup = {
  id: "group-1",
  name: "bert",
  projectId: "project-1",
  createdAt: "2026-11-21T05:00:00Z",
  masterAddress: "gn6",
  worldSize: null,
  effectiveWorldSize: 4,
  masterPort: 29500,
  backend: "nccl",
  effectiveBackend: "nccl",
  script: "train.py",
  args: ["--epochs", "3"],
  env: { NCCL_DEBUG: "INFO" },
  secretEnv: { WANDB_API_KEY: "wandb" },
  maxRestarts: 3,
  workers: ["gn6-0", "gn39-0", "gn40-0", "gn7-0"].map((id, rank) => {
    const { node, number, status } = worker(id);
    return { id, node, number, status, rank, localRank: 0, nodeRank: rank };
  }),
  problems: [],
  warnings: [],
  task: null,
  allowedActions: ["start", "edit", "delete"],
};

/** A drill of the running task, after which training resumed. */
export const drill: Drill = {
  id: "drill-1",
  status: "done",
  reason: null,
  taskId: "task-1",
  stage: false,
  projectId: "project-1",
  owner: "ada",
  minutes: 15,
  createdAt: "2026-11-21T05:00:00Z",
  startedAt: "2026-11-21T05:00:01Z",
  endedAt: "2026-11-21T05:00:20Z",
  attempt: 2,
  step: 108,
  verdict: { level: "pass", code: "DRILL_RESUMES", message: "训练从第 90 步继续", hint: "" },
  rank: 1,
  node: "gn5",
  checkpoint: { path: "/data/checkpoints/drill-1/checkpoint_step_90.pt", sizeBytes: 1677719, step: 90 },
  killedStep: 93,
  resumedStep: 90,
  stepsLost: 3,
  restartSeconds: 1.1,
  resumedSeconds: 1.3,
  allowedActions: [],
};

/** Two nodes; one direction between them is slow. */
export const preflight: Preflight = {
  id: "preflight-1",
  status: "done",
  allowedActions: [],
  level: "full",
  reason: null,
  taskId: null,
  projectId: "project-1",
  owner: "ada",
  startedAt: "2026-11-21T05:00:01Z",
  createdAt: "2026-11-21T05:00:00Z",
  endedAt: "2026-11-21T05:00:09Z",
  environments: [
    { id: "env-1", name: "gn6" },
    { id: "env-2", name: "gn7" },
  ],
  nodes: ["env-1", "env-2"].map((environmentId, index) => ({
    environmentId,
    name: `gn${index + 6}`,
    level: "pass" as const,
    findings: [{ check: "disk", level: "pass" as const, code: "OK", message: "磁盘充足", hint: "", value: null }],
  })),
  pairs: [
    {
      from: "env-1",
      to: "env-2",
      level: "warn",
      rttMs: 0.21,
      bandwidthMbps: 94,
      interface: "eth0",
      findings: [
        {
          check: "bandwidth",
          level: "warn",
          code: "LINK_SLOW",
          message: "gn6 → gn7 只有 94 Mbit/s",
          hint: "检查网线与交换机端口",
          value: 94,
        },
      ],
    },
    {
      from: "env-2",
      to: "env-1",
      level: "pass",
      rttMs: 0.2,
      bandwidthMbps: 940,
      interface: "eth0",
      findings: [],
    },
  ],
  together: { level: "pass", allReduceMs: 1.5, barrierMs: 0.4, findings: [] },
  verdict: {
    level: "warn",
    message: "一条线路很慢",
    culprits: [{ environmentIds: ["env-2"], code: "LINK_SLOW", message: "gn7 的下行很慢", hint: "换掉它，或修好网线" }],
  },
};

/** Returns a waiting task of the fixtures' project. */
export function waiter(number: number, over: Partial<QueuedTask> = {}): QueuedTask {
  return {
    number,
    taskId: `task-${number}`,
    taskName: `waits-${number}`,
    projectId: "project-1",
    owner: "ada",
    priority: "normal",
    preemptible: false,
    mayMove: false,
    asks: { nodes: 2, gpus: 8, gpuTypes: ["A100"], text: "2 台，每台 4 块 A100" },
    since: "2026-11-21T05:00:00Z",
    reason: { code: "WAITING_FOR_CAPACITY", message: "还差 1 台", hint: "" },
    begins: null,
    early: null,
    late: null,
    after: [],
    ...over,
  };
}

/** Limits of the fixtures' project: six of eight GPUs held, two of them borrowed. */
export const limits: Limits = {
  projectId: "project-1",
  weight: 2,
  guaranteedGpus: 4,
  mostGpus: 8,
  mostTasks: null,
  gpuHours: 100,
  gpuTypes: ["A100"],
  zones: [],
  priorities: ["low", "normal"],
  longestRunSeconds: 7200,
  userMostGpus: null,
  userMostTasks: null,
  userGpuHours: null,
  budget: 1000,
  atBudget: "refuse",
  maxFileBytes: 2 ** 40,
  maxEnvironments: 5,
  maxEnvironmentGpus: null,
  userMaxEnvironments: null,
  userMaxEnvironmentGpus: null,
  currency: "CNY",
  updatedAt: null,
  updatedBy: "",
  mayChange: false,
  use: { gpus: 6, sharedGpus: 6, tasks: 3, gpuHours: 42.5, cost: 850, share: 0, environments: 1, environmentGpus: 2 },
};

export const noticeKinds = [
  { kind: "task_restarted", level: "warn", title: "任务重启", description: "一次尝试结束，下一次即将开始。" },
  { kind: "task_waits", level: "warn", title: "任务等待过久", description: "等待环境已满一小时。" },
];

import type { Dataset, Environment, Framework, Metric, Model, Task, Zone } from "@/api/types";

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
    ...over,
  };
}

export const task: Task = {
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
  createdAt: "2026-11-21T05:00:00Z",
  startedAt: "2026-11-21T05:00:01Z",
  endedAt: null,
  step: 10,
  loss: 2.5,
  datasetId: "dataset-1",
  datasetVersionId: "version-1",
  modelId: "model-1",
  summary: {
    totalCpus: 16,
    totalMemoryGb: 128,
    gpuTypes: ["A100"],
    zones: ["北京可用区A"],
    crossZone: false,
  },
  warnings: [],
  proposal: null,
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
  })),
  attempts: [
    {
      number: 1,
      masterPort: 29500,
      outcome: null,
      resumeFrom: null,
      createdAt: "2026-11-21T05:00:00Z",
      runningAt: "2026-11-21T05:00:01Z",
      endedAt: null,
    },
  ],
  allowedActions: ["stop", "clone"],
  request: {},
  preflightId: null,
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
};

export const zone: Zone = { id: "zone-a", name: "北京可用区A", environmentCount: 2, gpuCount: 4 };

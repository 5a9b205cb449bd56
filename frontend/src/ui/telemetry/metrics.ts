import type { MetricName } from "@/api/telemetry";

interface PanelConfig {
  metrics: readonly MetricName[];
  /** Only the first of the metrics that has data. */
  oneOf?: true;
  /** Shown by default. */
  atFirst?: true;
  /** Metrics of ranks, or shown only with them. */
  ofTasks?: true;
  /** The axis' maximum, so that charts can be compared. */
  top?: number;
  /** The axis does not start at zero. */
  near?: true;
}

const PANELS = {
  gpu: { metrics: ["gpu"], atFirst: true, top: 100 },
  gpuMemory: { metrics: ["gpu_memory"], atFirst: true },
  power: { metrics: ["power"], atFirst: true },
  temperature: { metrics: ["temperature"], atFirst: true, near: true },
  cpu: { metrics: ["rank_cpu", "cpu"], oneOf: true, atFirst: true },
  memory: { metrics: ["rank_memory", "memory"], oneOf: true, atFirst: true },
  network: { metrics: ["received", "sent"], atFirst: true },
  disk: { metrics: ["disk_read", "disk_written"], atFirst: true },
  rankGpuMemory: { metrics: ["rank_gpu_memory"], ofTasks: true },
  rankDisk: { metrics: ["rank_read", "rank_written"], ofTasks: true },
  nodeCpu: { metrics: ["cpu"], ofTasks: true },
  nodeMemory: { metrics: ["memory"], ofTasks: true },
  smClock: { metrics: ["sm_clock"], near: true },
  memoryClock: { metrics: ["memory_clock"], near: true },
  throttled: { metrics: ["throttled"] },
  ecc: { metrics: ["ecc"] },
  xid: { metrics: ["xid"] },
  nvlink: { metrics: ["nvlink_received", "nvlink_sent"] },
  pcie: { metrics: ["pcie_received", "pcie_sent"] },
  gpuProcesses: { metrics: ["gpu_processes"] },
  load: { metrics: ["load"] },
  shm: { metrics: ["shm"] },
  diskUsed: { metrics: ["disk_used"] },
} as const satisfies Record<string, PanelConfig>;

export type PanelId = keyof typeof PANELS;
export const PANEL_IDS = Object.keys(PANELS) as PanelId[];

export const getPanelConfig = (id: PanelId): PanelConfig => PANELS[id];

export const DEFAULT_PANELS = PANEL_IDS.filter((id) => getPanelConfig(id).atFirst);
export const MACHINE_PANELS = PANEL_IDS.filter((id) => !getPanelConfig(id).ofTasks);

export const listMetrics = (panels: PanelId[]): MetricName[] => [
  ...new Set(panels.flatMap((panel) => getPanelConfig(panel).metrics)),
];

/** Bits of the metric `throttled` (fermi.telemetry.metrics). */
const THROTTLE_BITS = { power: 1, heat: 2, hardware: 4, other: 8 } as const;

/** Returns why a GPU was throttled. */
export const decodeThrottleReasons = (bits: number): (keyof typeof THROTTLE_BITS)[] =>
  (Object.keys(THROTTLE_BITS) as (keyof typeof THROTTLE_BITS)[]).filter((why) => bits & THROTTLE_BITS[why]);

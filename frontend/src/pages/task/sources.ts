import type { TFunction } from "i18next";

/** Names of the trackers whose calls the platform reads, as they write themselves. */
const TRACKERS: Record<string, string> = {
  wandb: "W&B",
  mlflow: "MLflow",
  tensorboard: "TensorBoard",
  transformers: "Transformers",
  accelerate: "Accelerate",
  lightning: "Lightning",
  swanlab: "SwanLab",
  trackio: "Trackio",
  aim: "Aim",
  comet: "Comet",
};

/** Returns who reported values: a tracker, or where the platform found them. */
export function getSourceLabel(t: TFunction, source: string): string {
  if (source === "json" || source === "text" || source === "file") return t(`task.source.${source}`);
  return TRACKERS[source] ?? source;
}

import type { Dataset, Model } from "@/api/types";
import type { Draft } from "./draft";

/** Returns the version to select: a ready one, or one that is being prepared. */
export function findUsableVersion(dataset: Dataset | undefined): string | undefined {
  const usable = dataset?.versions.filter(({ status }) => status !== "failed") ?? [];
  return (usable.find(({ status }) => status === "ready") ?? usable[0])?.id;
}

/** Fills in the first usable dataset and the first model where the draft has none. */
export function fillDefaultChoices(
  datasets: Dataset[],
  models: Model[],
  draft?: Draft,
): Pick<Draft, "datasetId" | "datasetVersionId" | "modelId"> {
  const dataset = datasets.find((each) => (draft?.datasetId ? each.id === draft.datasetId : findUsableVersion(each)));
  return {
    datasetId: draft?.datasetId || (dataset?.id ?? ""),
    datasetVersionId: draft?.datasetVersionId || (findUsableVersion(dataset) ?? ""),
    modelId: draft?.modelId || (models[0]?.id ?? ""),
  };
}

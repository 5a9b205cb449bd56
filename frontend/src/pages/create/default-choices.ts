import type { Dataset, Model } from "@/api/types";
import type { Draft } from "./draft";

/** The version to start with: a task waits for one that is being prepared, but one that failed cannot be used. */
export function findUsableVersion(dataset: Dataset | undefined): string | undefined {
  const usable = dataset?.versions.filter(({ status }) => status !== "failed") ?? [];
  return (usable.find(({ status }) => status === "ready") ?? usable[0])?.id;
}

/** The first dataset that can be used, and the first model, in place of what `draft` does not name. */
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

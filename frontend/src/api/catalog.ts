import type { QueryClient } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import { inventoryKeys } from "./inventory";

export const addDataset = (body: { name: string; path: string; description?: string; projectId: string | null }) =>
  unwrapResponse(http.POST("/api/v1/datasets", { body }));

export const addVersion = (id: string, body: { path: string; name?: string }) =>
  unwrapResponse(http.POST("/api/v1/datasets/{dataset_id}/versions", { params: { path: { dataset_id: id } }, body }));

export function invalidateDatasets(client: QueryClient): Promise<void> {
  return client.invalidateQueries({ queryKey: inventoryKeys.datasets });
}

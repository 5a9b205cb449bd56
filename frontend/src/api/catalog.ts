import type { QueryClient } from "@tanstack/react-query";
import { http, unwrap } from "./client";
import { inventoryKeys } from "./inventory";

export const addDataset = (body: { name: string; path: string; description?: string; projectId: string | null }) =>
  unwrap(http.POST("/api/v1/datasets", { body }));

export const addVersion = (id: string, body: { path: string; name?: string }) =>
  unwrap(http.POST("/api/v1/datasets/{dataset_id}/versions", { params: { path: { dataset_id: id } }, body }));

export function datasetsChanged(client: QueryClient): Promise<void> {
  return client.invalidateQueries({ queryKey: inventoryKeys.datasets });
}

import { queryOptions, type QueryClient } from "@tanstack/react-query";
import type { components } from "./schema";
import { fetchAllPages, http, unwrapResponse } from "./client";
import { invalidateRoleRules } from "./role-rules";

export type Directory = components["schemas"]["DirectoryItem"];
export type DirectoryRequest = components["schemas"]["DirectoryRequest"];
export type DirectoryToken = components["schemas"]["DirectoryTokenItem"];

const key = ["directories"] as const;

export const directoriesQuery = queryOptions({
  queryKey: key,
  queryFn: () =>
    fetchAllPages((page) =>
      unwrapResponse(http.GET("/api/v1/directories", { params: { query: { page, pageSize: 100 } } })),
    ),
});

export const invalidateDirectories = (client: QueryClient) => client.invalidateQueries({ queryKey: key });

const at = (id: string) => ({ params: { path: { directory_id: id } } });

export const createDirectory = (body: DirectoryRequest) => unwrapResponse(http.POST("/api/v1/directories", { body }));

/** Deletes a directory, with which roles end. */
export const deleteDirectory = async (client: QueryClient, id: string) => {
  await unwrapResponse(http.DELETE("/api/v1/directories/{directory_id}", at(id)));
  await invalidateRoleRules(client);
};

export const createDirectoryToken = (id: string) =>
  unwrapResponse(http.POST("/api/v1/directories/{directory_id}/tokens", at(id)));

export const revokeDirectoryToken = (id: string, token: string) =>
  unwrapResponse(
    http.DELETE("/api/v1/directories/{directory_id}/tokens/{token_id}", {
      params: { path: { directory_id: id, token_id: token } },
    }),
  );

import { keepPreviousData, type QueryClient, queryOptions } from "@tanstack/react-query";
import { getLocale } from "@/i18n";
import { Sha256 } from "@/lib/sha256";
import { fetchCsrfToken, http, unwrapResponse } from "./client";
import { ApiError } from "./errors";
import type { components } from "./schema";

export type FileItem = components["schemas"]["FileItem"];
type Upload = components["schemas"]["UploadItem"];

const CHUNK_BYTES = 8 * 1024 * 1024;
const HASH_BLOCK_BYTES = 1024 * 1024;
export const FILES_PER_PAGE = 100;

export interface FileListRequest {
  path: string;
  search: string;
  page: number;
}

export const fileKeys = {
  project: (project: string) => ["files", project] as const,
  outputs: (task: string) => ["outputs", task] as const,
};

export const filesQuery = (project: string, asked: FileListRequest) =>
  queryOptions({
    queryKey: [...fileKeys.project(project), asked],
    queryFn: ({ signal }) =>
      unwrapResponse(
        http.GET("/api/v1/projects/{project_id}/files", {
          params: { path: { project_id: project }, query: { ...asked, pageSize: FILES_PER_PAGE } },
          signal,
        }),
      ),
    enabled: project !== "",
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => (state.data?.items.some(({ busy }) => busy) ? 2_000 : false),
  });

export const fileUseQuery = (project: string) =>
  queryOptions({
    queryKey: [...fileKeys.project(project), "use"],
    queryFn: () =>
      unwrapResponse(
        http.GET("/api/v1/projects/{project_id}/files/use", { params: { path: { project_id: project } } }),
      ),
    enabled: project !== "",
  });

export const libraryCacheQuery = (project: string) =>
  queryOptions({
    queryKey: [...fileKeys.project(project), "cache"],
    queryFn: () =>
      unwrapResponse(http.GET("/api/v1/projects/{project_id}/cache", { params: { path: { project_id: project } } })),
    enabled: project !== "",
  });

export const cleanLibraryCache = (project: string) =>
  unwrapResponse(
    http.POST("/api/v1/projects/{project_id}/cache/clean", {
      params: { path: { project_id: project } },
      body: { keepBytes: 0 },
    }),
  );

export const outputsQuery = (task: string, asked: FileListRequest, live: boolean) =>
  queryOptions({
    queryKey: [...fileKeys.outputs(task), asked],
    queryFn: ({ signal }) =>
      unwrapResponse(
        http.GET("/api/v1/training-tasks/{task_id}/outputs", {
          params: { path: { task_id: task }, query: { ...asked, pageSize: FILES_PER_PAGE } },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: live ? 10_000 : false,
  });

export const createFolder = (project: string, path: string) =>
  unwrapResponse(
    http.POST("/api/v1/projects/{project_id}/files/folders", {
      params: { path: { project_id: project } },
      body: { path },
    }),
  );

export const moveFile = (project: string, path: string, to: string) =>
  unwrapResponse(
    http.POST("/api/v1/projects/{project_id}/files/move", {
      params: { path: { project_id: project } },
      body: { path, to },
    }),
  );

export const deleteFile = (project: string, path: string) =>
  unwrapResponse(
    http.DELETE("/api/v1/projects/{project_id}/files", {
      params: { path: { project_id: project }, query: { path, recursive: true } },
    }),
  );

export function invalidateFiles(client: QueryClient, project: string): Promise<void> {
  return client.invalidateQueries({ queryKey: fileKeys.project(project) });
}

const query = (path: string) => new URLSearchParams({ path }).toString();

/** Returns the address from which to download a file, or a folder as a zip. */
export function buildDownloadUrl(below: string, item: { path: string; kind: string }): string {
  return `/api/v1/${below}/${item.kind === "folder" ? "archive" : "content"}?${query(item.path)}`;
}

/**
 * Uploads a file in chunks. An upload that failed continues where it stopped. `tell` gets the share that is done (0–1).
 */
export async function uploadFile(
  project: string,
  path: string,
  file: File,
  replace: boolean,
  tell: (share: number) => void,
  signal: AbortSignal,
): Promise<void> {
  const hash = new Sha256();
  for (let at = 0; at < file.size; at += HASH_BLOCK_BYTES) {
    signal.throwIfAborted();
    hash.update(new Uint8Array(await file.slice(at, at + HASH_BLOCK_BYTES).arrayBuffer()));
  }
  const params = { path: { project_id: project } };
  const body = { path, sizeBytes: file.size, sha256: hash.hex(), replace };
  let upload: Upload = await unwrapResponse(
    http.POST("/api/v1/projects/{project_id}/file-uploads", { params, body, signal }),
  );
  const place = { path: { project_id: project, upload_id: upload.id } };
  while (upload.state === "receiving" && upload.offset < file.size) {
    tell(upload.offset / file.size);
    upload = await uploadChunk(project, upload, file.slice(upload.offset, upload.offset + CHUNK_BYTES), signal);
  }
  tell(1);
  if (upload.state === "done") return;
  const FINISH = "/api/v1/projects/{project_id}/file-uploads/{upload_id}/finish";
  const LOOK = "/api/v1/projects/{project_id}/file-uploads/{upload_id}";
  upload = await unwrapResponse(http.POST(FINISH, { params: place, signal }));
  while (upload.state === "checking") {
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    upload = await unwrapResponse(http.GET(LOOK, { params: place, signal }));
  }
  if (upload.error) throw new Error(upload.error.message);
}

async function uploadChunk(project: string, upload: Upload, piece: Blob, signal: AbortSignal): Promise<Upload> {
  const address = `/api/v1/projects/${project}/file-uploads/${upload.id}/content?offset=${upload.offset}`;
  const response = await fetch(address, {
    method: "PUT",
    body: piece,
    signal,
    headers: {
      "Content-Type": "application/octet-stream",
      "Accept-Language": getLocale(),
      "X-CSRFToken": await fetchCsrfToken(),
    },
  });
  const answer: unknown = await response.json();
  if (!response.ok) throw new ApiError(response.status, answer);
  return (answer as { data: Upload }).data;
}

import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { fetchAllPages, http, unwrapResponse } from "./client";
import type { SavedTemplateChange, SavedTemplateRequest, TemplateRunRequest } from "./types";

export const TEMPLATES_PER_PAGE = 20;
/** The largest page that the platform allows. */
const PAGE = 200;

export interface TemplateFilters {
  search?: string;
  project?: string;
  ordering?: "name" | "-name" | "updatedAt" | "-updatedAt";
  page: number;
}

export const templateKeys = {
  all: ["saved-templates"] as const,
  list: (filters: TemplateFilters) => [...templateKeys.all, "list", filters] as const,
  ofProject: (project: string) => [...templateKeys.all, "project", project] as const,
  one: (id: string) => [...templateKeys.all, id] as const,
  preview: (id: string, body: TemplateRunRequest) => [...templateKeys.one(id), "preview", body] as const,
};

export const savedTemplatesQuery = (filters: TemplateFilters) =>
  queryOptions({
    queryKey: templateKeys.list(filters),
    queryFn: () =>
      unwrapResponse(
        http.GET("/api/v1/saved-templates", { params: { query: { ...filters, pageSize: TEMPLATES_PER_PAGE } } }),
      ),
    placeholderData: keepPreviousData,
  });

/** All templates that a project may use. */
export const projectTemplatesQuery = (project: string) =>
  queryOptions({
    queryKey: templateKeys.ofProject(project),
    queryFn: () =>
      fetchAllPages((page) =>
        unwrapResponse(http.GET("/api/v1/saved-templates", { params: { query: { project, page, pageSize: PAGE } } })),
      ),
    enabled: project !== "",
  });

const at = (id: string) => ({ params: { path: { template_id: id } } });

export const savedTemplateQuery = (id: string) =>
  queryOptions({
    queryKey: templateKeys.one(id),
    queryFn: () => unwrapResponse(http.GET("/api/v1/saved-templates/{template_id}", at(id))),
    enabled: id !== "",
  });

/** Creates nothing, so the values are the key of the query. */
export const templatePreviewQuery = (id: string, body: TemplateRunRequest) =>
  queryOptions({
    queryKey: templateKeys.preview(id, body),
    queryFn: ({ signal }) =>
      unwrapResponse(http.POST("/api/v1/saved-templates/{template_id}/preview", { ...at(id), body, signal })),
    placeholderData: keepPreviousData,
    gcTime: 60_000,
  });

export const createSavedTemplate = (body: SavedTemplateRequest) =>
  unwrapResponse(http.POST("/api/v1/saved-templates", { body }));

export const changeSavedTemplate = (id: string, body: SavedTemplateChange) =>
  unwrapResponse(http.PATCH("/api/v1/saved-templates/{template_id}", { ...at(id), body }));

export const deleteSavedTemplate = (id: string) =>
  unwrapResponse(http.DELETE("/api/v1/saved-templates/{template_id}", at(id)));

/** Creates a task. The same body with the same idempotency key creates it only once. */
export const createTaskFromTemplate = (id: string, body: TemplateRunRequest, key: string) =>
  unwrapResponse(
    http.POST("/api/v1/saved-templates/{template_id}/tasks", {
      params: { path: { template_id: id }, header: { "Idempotency-Key": key } },
      body,
    }),
  );

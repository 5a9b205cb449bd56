import { keepPreviousData, type QueryClient, queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import { sessionKeys } from "./session";
import type { ProjectOrdering } from "./types";

const PAGE = 50;

const projectKeys = { projects: ["projects"] as const };

export interface ProjectFilters {
  search: string;
  ordering: ProjectOrdering | undefined;
  page: number;
}

/** The projects with the number of members, service accounts and running tasks; all of them for administrators. */
export const projectSummariesQuery = ({ ordering, ...filters }: ProjectFilters) =>
  queryOptions({
    queryKey: [...projectKeys.projects, filters, ordering],
    queryFn: () =>
      unwrapResponse(
        http.GET("/api/v1/overview/projects", {
          params: { query: { ...filters, pageSize: PAGE, ...(ordering && { ordering }) } },
        }),
      ),
    placeholderData: keepPreviousData,
  });

export const projectQuery = (id: string) =>
  queryOptions({
    queryKey: [...projectKeys.projects, id],
    queryFn: () => unwrapResponse(http.GET("/api/v1/projects/{project_id}", { params: { path: { project_id: id } } })),
  });

export const createProject = (name: string) => unwrapResponse(http.POST("/api/v1/projects", { body: { name } }));

export const renameProject = (id: string, name: string) =>
  unwrapResponse(http.PATCH("/api/v1/projects/{project_id}", { params: { path: { project_id: id } }, body: { name } }));

export const deleteProject = (id: string) =>
  unwrapResponse(http.DELETE("/api/v1/projects/{project_id}", { params: { path: { project_id: id } } }));

/** Loads again what lists projects, the signed-in user's own among them. */
export const refreshProjects = (client: QueryClient) =>
  Promise.all([projectKeys.projects, sessionKeys.me].map((queryKey) => client.invalidateQueries({ queryKey })));

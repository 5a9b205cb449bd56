import { queryOptions } from "@tanstack/react-query";
import { http, unwrapResponse } from "./client";
import type { components } from "./schema";

export type TaskPackages = components["schemas"]["PackagesOfTask"];
export type PackageInstallations = components["schemas"]["PackageInstallations"];

const LEVEL = "/api/v1/dev-environments/packages/level";

/** Starts installing and returns immediately. */
export const installMissingPackages = (ids: string[], packages: string[], python: string) =>
  unwrapResponse(http.POST(LEVEL, { body: { ids, packages, python } }));

/** Refreshed until all installations have ended. */
export const installationsQuery = (id: string) =>
  queryOptions({
    queryKey: ["installations", id] as const,
    queryFn: () =>
      unwrapResponse(http.GET(`${LEVEL}/{installation_id}`, { params: { path: { installation_id: id } } })),
    refetchInterval: ({ state }) => (state.data?.over ? false : 1_000),
  });

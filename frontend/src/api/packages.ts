import { queryOptions } from "@tanstack/react-query";
import { http, unwrap } from "./client";
import type { components } from "./schema";

export type PackagesOfTask = components["schemas"]["PackagesOfTask"];
export type Installations = components["schemas"]["PackageInstallations"];

const LEVEL = "/api/v1/dev-environments/packages/level";

/** Begins it and does not wait. */
export const levelPackages = (ids: string[], packages: string[], python: string) =>
  unwrap(http.POST(LEVEL, { body: { ids, packages, python } }));

/** Asked for until all have ended. */
export const installationsQuery = (id: string) =>
  queryOptions({
    queryKey: ["installations", id] as const,
    queryFn: () => unwrap(http.GET(`${LEVEL}/{installation_id}`, { params: { path: { installation_id: id } } })),
    refetchInterval: ({ state }) => (state.data?.over ? false : 1_000),
  });

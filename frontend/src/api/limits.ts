import { type QueryClient, queryOptions } from "@tanstack/react-query";
import { everyPage } from "./client";
import { ask } from "./loose";
import type { PriorityClass } from "./types";

/** Of a project, and what it uses now. Null or an empty list: no limit. */
export interface Limits {
  projectId: string;
  weight: number;
  guaranteedGpus: number | null;
  mostGpus: number | null;
  mostTasks: number | null;
  gpuHours: number | null;
  gpuTypes: string[];
  zones: string[];
  priorities: PriorityClass[];
  longestRunSeconds: number | null;
  userMostGpus: number | null;
  userMostTasks: number | null;
  userGpuHours: number | null;
  budget: number | null;
  atBudget: "warn" | "refuse" | "preemptible";
  currency: string;
  updatedAt: string | null;
  updatedBy: string;
  mayChange: boolean;
  use: { gpus: number; sharedGpus: number; tasks: number; gpuHours: number; cost: number; share: number };
}

/** Of a member. `own`: in place of what the project's limits say of each. */
export interface UserLimits {
  username: string;
  mostGpus: number | null;
  mostTasks: number | null;
  gpuHours: number | null;
  own: boolean;
  use: { gpus: number; tasks: number; gpuHours: number };
}

const limitsKey = (project: string) => ["limits", project] as const;

export const limitsQuery = (project: string) =>
  queryOptions({
    queryKey: [...limitsKey(project), "project"] as const,
    queryFn: () => ask<Limits>("GET", `/projects/${project}/limits`),
    refetchInterval: 15_000,
  });

export const userLimitsQuery = (project: string) =>
  queryOptions({
    queryKey: [...limitsKey(project), "users"] as const,
    queryFn: () =>
      everyPage((page) =>
        ask<{ items: UserLimits[]; total: number }>("GET", `/projects/${project}/limits/users`, {
          query: { page, pageSize: 100 },
        }),
      ),
    refetchInterval: 15_000,
  });

/** What was typed goes as it is where it is no number, so that the platform says what is wrong with it. */
export const putLimits = (project: string, body: object) => ask<Limits>("PUT", `/projects/${project}/limits`, { body });

export const putUserLimits = (project: string, username: string, body: object) =>
  ask<UserLimits>("PUT", `/projects/${project}/limits/users/${encodeURIComponent(username)}`, { body });

export const deleteUserLimits = (project: string, username: string) =>
  ask<null>("DELETE", `/projects/${project}/limits/users/${encodeURIComponent(username)}`);

export function limitsChanged(client: QueryClient, project: string): Promise<void> {
  return client.invalidateQueries({ queryKey: limitsKey(project) });
}

import type { RouteObject } from "react-router";
import { Skeleton } from "@/ui/skeleton";
import { Crash, NotFound, OperatorsOnly } from "./crash";
import { Home } from "./home";
import { Shell } from "./shell";

/** Every page is its own chunk, named `Component` by its module. */
export const routes: RouteObject[] = [
  {
    ErrorBoundary: Crash,
    HydrateFallback: Skeleton,
    children: [
      { path: "/sign-in", lazy: () => import("@/pages/sign-in") },
      {
        Component: Shell,
        children: [
          {
            ErrorBoundary: Crash,
            children: [
              { index: true, Component: Home },
              { path: "/overview", lazy: () => import("@/pages/overview") },
              { path: "/training", lazy: () => import("@/pages/tasks") },
              { path: "/training/create", lazy: () => import("@/pages/create") },
              { path: "/training/:id", lazy: () => import("@/pages/task") },
              { path: "/queue", lazy: () => import("@/pages/queue") },
              { path: "/queue/timeline", lazy: () => import("@/pages/timeline") },
              { path: "/queue/reservations", lazy: () => import("@/pages/reservations") },
              { path: "/usage", lazy: () => import("@/pages/usage") },
              { path: "/usage/prices", lazy: () => import("@/pages/prices") },
              { path: "/environments", lazy: () => import("@/pages/environments") },
              { path: "/environments/:id", lazy: () => import("@/pages/environment") },
              { path: "/datasets", lazy: () => import("@/pages/datasets") },
              { path: "/models", lazy: () => import("@/pages/models") },
              { path: "/zones", lazy: () => import("@/pages/zones") },
              { path: "/workers", lazy: () => import("@/pages/workers") },
              { path: "/workers/groups", lazy: () => import("@/pages/groups") },
              { path: "/workers/join-tokens", lazy: () => import("@/pages/join-tokens") },
              { path: "/workers/:id", lazy: () => import("@/pages/workers/worker") },
              { path: "/preflight", lazy: () => import("@/pages/preflights") },
              { path: "/preflight/create", lazy: () => import("@/pages/preflight-create") },
              { path: "/preflight/:id", lazy: () => import("@/pages/preflight") },
              { path: "/settings", lazy: () => import("@/pages/settings") },
              { path: "/settings/notices", lazy: () => import("@/pages/settings/notices") },
              { path: "/operators-only", Component: OperatorsOnly },
              { path: "*", Component: NotFound },
            ],
          },
        ],
      },
    ],
  },
];

import type { RouteObject } from "react-router";
import { withTexts } from "@/i18n";
import { Skeleton } from "@/ui/skeleton";
import { CrashPage, NotFoundPage, OperatorsOnlyPage } from "./error-pages";
import { HomeRedirect } from "./home-redirect";
import { Shell } from "./shell";

/** Every page is its own chunk, named `Component` by its module, and comes with the parts of the texts that it says. */
export const routes: RouteObject[] = [
  {
    ErrorBoundary: CrashPage,
    HydrateFallback: Skeleton,
    children: [
      { path: "/sign-in", lazy: () => import("@/pages/sign-in") },
      {
        Component: Shell,
        children: [
          {
            ErrorBoundary: CrashPage,
            children: [
              { index: true, Component: HomeRedirect },
              { path: "/overview", lazy: () => withTexts(import("@/pages/overview"), "overview", "timeline", "usage") },
              { path: "/training", lazy: () => import("@/pages/tasks") },
              { path: "/training/create", lazy: () => import("@/pages/create") },
              { path: "/training/:id", lazy: () => import("@/pages/task") },
              { path: "/queue", lazy: () => import("@/pages/queue") },
              { path: "/queue/timeline", lazy: () => withTexts(import("@/pages/timeline"), "timeline") },
              {
                path: "/queue/reservations",
                lazy: () => withTexts(import("@/pages/reservations"), "reservations", "timeline"),
              },
              {
                path: "/usage",
                lazy: () => withTexts(import("@/pages/usage"), "usage", "overview", "timeline", "prices"),
              },
              { path: "/usage/prices", lazy: () => withTexts(import("@/pages/prices"), "prices", "usage") },
              { path: "/environments", lazy: () => withTexts(import("@/pages/environments"), "hosted") },
              {
                path: "/environment-templates",
                lazy: () => withTexts(import("@/pages/environment-templates"), "hosted"),
              },
              { path: "/environments/:id", lazy: () => withTexts(import("@/pages/environment"), "hosted") },
              { path: "/datasets", lazy: () => import("@/pages/datasets") },
              { path: "/files", lazy: () => withTexts(import("@/pages/files"), "files") },
              { path: "/models", lazy: () => import("@/pages/models") },
              { path: "/zones", lazy: () => import("@/pages/zones") },
              { path: "/workers", lazy: () => import("@/pages/workers") },
              { path: "/workers/groups", lazy: () => withTexts(import("@/pages/groups"), "groups") },
              { path: "/workers/join-tokens", lazy: () => import("@/pages/join-tokens") },
              { path: "/workers/:id", lazy: () => import("@/pages/workers/worker-page") },
              { path: "/preflight", lazy: () => import("@/pages/preflights") },
              { path: "/preflight/create", lazy: () => import("@/pages/preflight-create") },
              { path: "/preflight/:id", lazy: () => import("@/pages/preflight") },
              { path: "/settings", lazy: () => import("@/pages/settings") },
              { path: "/settings/notices", lazy: () => withTexts(import("@/pages/settings/notices"), "notices") },
              { path: "/operators-only", Component: OperatorsOnlyPage },
              { path: "*", Component: NotFoundPage },
            ],
          },
        ],
      },
    ],
  },
];

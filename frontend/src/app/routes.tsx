import type { RouteObject } from "react-router";
import { withPageTexts } from "@/i18n";
import { Skeleton } from "@/ui/skeleton";
import { CrashPage, NotFoundPage, OperatorsOnlyPage } from "./error-pages";
import { HomeRedirect } from "./home-redirect";
import { Shell } from "./shell";

/** Every page is a chunk of its own, which exports `Component`. */
export const routes: RouteObject[] = [
  {
    ErrorBoundary: CrashPage,
    HydrateFallback: Skeleton,
    children: [
      { path: "/sign-in", lazy: () => import("@/pages/sign-in") },
      { path: "/sign-in/steps", lazy: () => withPageTexts(import("@/pages/sign-in-steps")) },
      {
        Component: Shell,
        children: [
          {
            ErrorBoundary: CrashPage,
            children: [
              { index: true, Component: HomeRedirect },
              { path: "/overview", lazy: () => withPageTexts(import("@/pages/overview")) },
              { path: "/training", lazy: () => import("@/pages/tasks") },
              { path: "/training/create", lazy: () => import("@/pages/create") },
              { path: "/compare", lazy: () => withPageTexts(import("@/pages/compare")) },
              { path: "/tensorboard", lazy: () => withPageTexts(import("@/pages/tensorboard")) },
              { path: "/training/:id", lazy: () => import("@/pages/task") },
              { path: "/runs", lazy: () => withPageTexts(import("@/pages/runs")) },
              { path: "/sweeps", lazy: () => withPageTexts(import("@/pages/sweeps")) },
              { path: "/sweeps/new", lazy: () => withPageTexts(import("@/pages/sweep-create")) },
              { path: "/sweeps/:id", lazy: () => withPageTexts(import("@/pages/sweeps/sweep-page")) },
              { path: "/templates", lazy: () => withPageTexts(import("@/pages/templates")) },
              { path: "/templates/create", lazy: () => withPageTexts(import("@/pages/templates/editor-page")) },
              { path: "/templates/:id", lazy: () => withPageTexts(import("@/pages/templates/template-page")) },
              { path: "/templates/:id/edit", lazy: () => withPageTexts(import("@/pages/templates/editor-page")) },
              { path: "/schedules", lazy: () => withPageTexts(import("@/pages/schedules")) },
              { path: "/schedules/create", lazy: () => withPageTexts(import("@/pages/schedules/form-page")) },
              { path: "/schedules/:id", lazy: () => withPageTexts(import("@/pages/schedules/schedule-page")) },
              { path: "/schedules/:id/edit", lazy: () => withPageTexts(import("@/pages/schedules/form-page")) },
              { path: "/agents", lazy: () => withPageTexts(import("@/pages/agents")) },
              { path: "/agents/proposals", lazy: () => withPageTexts(import("@/pages/agents/proposals-page")) },
              { path: "/agents/proposals/:id", lazy: () => withPageTexts(import("@/pages/agents/proposal-page")) },
              { path: "/agents/:id", lazy: () => withPageTexts(import("@/pages/agents/agent-page")) },
              { path: "/queue", lazy: () => import("@/pages/queue") },
              { path: "/queue/timeline", lazy: () => withPageTexts(import("@/pages/timeline")) },
              {
                path: "/queue/reservations",
                lazy: () => withPageTexts(import("@/pages/reservations")),
              },
              {
                path: "/usage",
                lazy: () => withPageTexts(import("@/pages/usage")),
              },
              { path: "/usage/prices", lazy: () => withPageTexts(import("@/pages/prices")) },
              { path: "/environments", lazy: () => withPageTexts(import("@/pages/environments")) },
              {
                path: "/environment-templates",
                lazy: () => withPageTexts(import("@/pages/environment-templates")),
              },
              { path: "/environments/:id", lazy: () => withPageTexts(import("@/pages/environment")) },
              { path: "/datasets", lazy: () => import("@/pages/datasets") },
              { path: "/files", lazy: () => withPageTexts(import("@/pages/files")) },
              { path: "/models", lazy: () => import("@/pages/models") },
              { path: "/zones", lazy: () => import("@/pages/zones") },
              { path: "/workers", lazy: () => import("@/pages/workers") },
              { path: "/workers/groups", lazy: () => withPageTexts(import("@/pages/groups")) },
              { path: "/workers/join-tokens", lazy: () => import("@/pages/join-tokens") },
              { path: "/workers/:id", lazy: () => import("@/pages/workers/worker-page") },
              { path: "/preflight", lazy: () => import("@/pages/preflights") },
              { path: "/preflight/create", lazy: () => import("@/pages/preflight-create") },
              { path: "/preflight/:id", lazy: () => import("@/pages/preflight") },
              { path: "/settings", lazy: () => withPageTexts(import("@/pages/settings")) },
              { path: "/people", lazy: () => withPageTexts(import("@/pages/people")) },
              { path: "/administration/projects", lazy: () => withPageTexts(import("@/pages/projects")) },
              {
                path: "/administration/projects/:id",
                lazy: () => withPageTexts(import("@/pages/projects/project-page")),
              },
              { path: "/settings/notices", lazy: () => withPageTexts(import("@/pages/settings/notices")) },
              { path: "/oauth/authorize", lazy: () => withPageTexts(import("@/pages/oauth")) },
              { path: "/oauth/device", lazy: () => withPageTexts(import("@/pages/oauth/device-page")) },
              { path: "/administration/sign-in", lazy: () => withPageTexts(import("@/pages/identity")) },
              { path: "/administration/roles", lazy: () => withPageTexts(import("@/pages/role-rules")) },
              { path: "/audit", lazy: () => withPageTexts(import("@/pages/audit")) },
              { path: "/administration/policies", lazy: () => withPageTexts(import("@/pages/policies")) },
              { path: "/operators-only", Component: OperatorsOnlyPage },
              { path: "*", Component: NotFoundPage },
            ],
          },
        ],
      },
    ],
  },
];

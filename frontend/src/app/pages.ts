/** A page in the navigation. `key` follows `g` on the keyboard; pages of a group share one entry. */
interface NavPage {
  to: string;
  label: NavLabel;
  key: string;
  group?: NavGroup;
  /** Shown to administrators only. */
  administrator?: boolean;
}

export type NavGroup = "repeat" | "machines" | "data" | "administration";
type NavLabel =
  | "app.overview"
  | "app.tasks"
  | "app.runs"
  | "app.sweeps"
  | "app.templates"
  | "app.schedules"
  | "app.agents"
  | "app.queue"
  | "app.environments"
  | "app.workers"
  | "app.preflights"
  | "app.zones"
  | "app.datasets"
  | "app.files"
  | "app.models"
  | "app.usage"
  | "app.people"
  | "app.identityProviders"
  | "app.roleRules"
  | "app.audit"
  | "app.policies";

/** Pages in the navigation, in its order. */
export const NAV_PAGES: readonly NavPage[] = [
  { to: "/overview", label: "app.overview", key: "o" },
  { to: "/training", label: "app.tasks", key: "t" },
  { to: "/runs", label: "app.runs", key: "r" },
  { to: "/sweeps", label: "app.sweeps", key: "x", group: "repeat" },
  { to: "/templates", label: "app.templates", key: "l", group: "repeat" },
  { to: "/schedules", label: "app.schedules", key: "c", group: "repeat" },
  { to: "/queue", label: "app.queue", key: "q" },
  { to: "/environments", label: "app.environments", key: "e" },
  { to: "/workers", label: "app.workers", key: "w", group: "machines" },
  { to: "/preflight", label: "app.preflights", key: "p", group: "machines" },
  { to: "/zones", label: "app.zones", key: "z", group: "machines" },
  { to: "/datasets", label: "app.datasets", key: "d", group: "data" },
  { to: "/files", label: "app.files", key: "f", group: "data" },
  { to: "/models", label: "app.models", key: "m", group: "data" },
  { to: "/usage", label: "app.usage", key: "u" },
  { to: "/people", label: "app.people", key: "a", group: "administration", administrator: true },
  {
    to: "/administration/sign-in",
    label: "app.identityProviders",
    key: "",
    group: "administration",
    administrator: true,
  },
  { to: "/administration/roles", label: "app.roleRules", key: "", group: "administration", administrator: true },
  { to: "/audit", label: "app.audit", key: "", group: "administration", administrator: true },
  { to: "/administration/policies", label: "app.policies", key: "", group: "administration", administrator: true },
  { to: "/agents", label: "app.agents", key: "b", group: "administration" },
];

/** Pages inside others, and pages behind the user's name. */
export const OTHER_PAGES = [
  { to: "/queue/timeline", label: "app.timeline", key: "" },
  { to: "/queue/reservations", label: "app.reservations", key: "" },
  { to: "/workers/groups", label: "palette.kinds.groups", key: "" },
  { to: "/environment-templates", label: "app.environmentTemplates", key: "" },
  { to: "/administration/projects", label: "app.projects", key: "" },
  { to: "/settings", label: "settings.title", key: "s" },
  { to: "/settings/notices", label: "app.noticeSettings", key: "" },
] as const;

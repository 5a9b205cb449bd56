/** Pages in the navigation. `key` follows `g` on the keyboard. */
export const NAV_PAGES = [
  { to: "/overview", label: "app.overview", key: "o" },
  { to: "/training", label: "app.tasks", key: "t" },
  { to: "/runs", label: "app.runs", key: "r" },
  { to: "/sweeps", label: "app.sweeps", key: "x" },
  { to: "/queue", label: "app.queue", key: "q" },
  { to: "/environments", label: "app.environments", key: "e" },
  { to: "/workers", label: "app.workers", key: "w" },
  { to: "/preflight", label: "app.preflights", key: "p" },
  { to: "/datasets", label: "app.datasets", key: "d" },
  { to: "/files", label: "app.files", key: "f" },
  { to: "/models", label: "app.models", key: "m" },
  { to: "/zones", label: "app.zones", key: "z" },
  { to: "/usage", label: "app.usage", key: "u" },
] as const;

/** Pages inside others, and pages behind the user's name. */
export const OTHER_PAGES = [
  { to: "/queue/timeline", label: "app.timeline", key: "" },
  { to: "/queue/reservations", label: "app.reservations", key: "" },
  { to: "/workers/groups", label: "palette.kinds.groups", key: "" },
  { to: "/environment-templates", label: "app.environmentTemplates", key: "" },
  { to: "/settings", label: "settings.title", key: "s" },
  { to: "/settings/notices", label: "app.noticeSettings", key: "" },
] as const;

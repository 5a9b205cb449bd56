import type { Translated } from "../zh";
import type zh from "./reservations.zh";

const en: Translated<typeof zh> = {
  calendar: "Reservation calendar",
  create: "New reservation",
  createOn: "New reservation on {{day}}",
  change: "Change reservation",
  changeOf: "Change reservation “{{name}}”",
  formHint:
    "During this time, only one project can use these environments. During maintenance no project can, and tasks that would not end before it do not start there.",
  saved: "Reservation saved",
  for: "For",
  otherProject: "Another project",
  maintenance: "Maintenance",
  note: "Note",
  environments: "Environments",
  chosen: "{{count}} selected",
  more: "{{count}} more; search to find them",
  moreOnDay: "{{count}} more",
  today: "Today",
  view: "View",
  month: "Month",
  week: "Week",
  delete: "Delete",
  deleteOf: "Delete reservation “{{name}}”",
  deleteTitle: "Delete reservation “{{name}}”?",
  deleteHint: "Other tasks can use these environments immediately.",
  deleted: "Reservation deleted",
  empty: "No reservations and no maintenance in this time range",
  emptyHint: "A project's maintainers can reserve time on its environments, or plan maintenance.",
};
export default en;

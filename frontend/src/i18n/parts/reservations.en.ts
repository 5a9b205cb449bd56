import type { Translated } from "../zh";
import type zh from "./reservations.zh";

const en: Translated<typeof zh> = {
  calendar: "Calendar of reservations",
  create: "New reservation",
  createOn: "New reservation on {{day}}",
  change: "Change reservation",
  changeOf: "Change reservation “{{name}}”",
  formHint:
    "For this time only one project gets these environments. Under maintenance nobody does, and no task begins there that would not have ended before.",
  saved: "The reservation is saved",
  for: "For",
  otherProject: "Another project",
  maintenance: "Maintenance",
  note: "Note",
  environments: "Environments",
  chosen: "{{count}} chosen",
  more: "{{count}} more: search for them",
  moreOnDay: "{{count}} more",
  today: "Today",
  view: "View",
  month: "Month",
  week: "Week",
  delete: "Delete",
  deleteOf: "Delete reservation “{{name}}”",
  deleteTitle: "Delete reservation “{{name}}”?",
  deleteHint: "Other tasks can use these environments at once.",
  deleted: "The reservation is deleted",
  empty: "Nothing is reserved or maintained in this time",
  emptyHint: "A project's maintainers can reserve time on its environments, or plan maintenance.",
};
export default en;

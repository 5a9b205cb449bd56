import type { Translated } from "../zh";
import type zh from "./timeline.zh";

const en: Translated<typeof zh> = {
  search: "Search by environment name or id",
  range: "Time range",
  environment: "Environment",
  now: "Now",
  earlier: "Earlier",
  later: "Later",
  in: "Zoom in",
  out: "Zoom out",
  asTable: "Table",
  asChart: "Chart",
  legend: "Legend",
  kindOf: { held: "In use", next: "Next", reserved: "Reserved", maintenance: "Maintenance" },
  unsure: "the end is an estimate",
  perhaps: "about {{time}}",
  noEnd: "no estimate",
  what: "Use",
  who: "Who",
  from: "From",
  to: "To",
};
export default en;

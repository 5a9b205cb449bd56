import type { Translated } from "../zh";
import type zh from "./timeline.zh";

const en: Translated<typeof zh> = {
  search: "Search by environment's name or id",
  range: "Range of time",
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
  unsure: "its end is an estimate",
  perhaps: "about {{time}}",
  noEnd: "nobody knows",
  what: "Use",
  who: "Who",
  from: "From",
  to: "To",
};
export default en;

import type { Translated } from "../zh";
import type zh from "./usage.zh";

const en: Translated<typeof zh> = {
  title: "Usage and cost",
  sections: "Usage pages",
  by: "Group by",
  byOf: { project: "By project", user: "By user", environment: "By environment", task: "By task", month: "By month" },
  csv: "Download CSV",
  gpuHours: "GPU time",
  cost: "Cost",
  noPrice: "no price set",
  goodput: "Goodput",
  ettr: "ETTR",
  goodputHint: "share of held GPU time that moved training forward",
  tasks: "Tasks",
  parts: "How the time was spent",
  total: "Total",
  partOf: {
    training: "training",
    open: "held now",
    saving: "saving",
    starting: "starting",
    redone: "redone",
    lost: "lost to failures",
    hung: "hung",
    idle: "held but idle",
  },
  partHint: {
    training: "steps trained for the first time",
    open: "held at this moment, not classified yet",
    saving: "from the request to stop until the end",
    starting: "until the first step",
    redone: "steps that were trained again after a restart",
    lost: "failures, and the wait after them",
    hung: "ranks did not advance",
    idle: "environments were held, but nothing ran",
  },
  count_one: "{{count, number}} row",
  count_other: "{{count, number}} rows",
  empty: "No usage in this time range",
  emptyHint: "The time for which tasks hold environments is recorded here.",
};
export default en;

import type { Translated } from "../zh";
import type zh from "./usage.zh";

const en: Translated<typeof zh> = {
  title: "Usage and cost",
  sections: "Pages about usage",
  by: "Add up by",
  byOf: { project: "By project", user: "By user", environment: "By environment", task: "By task", month: "By month" },
  csv: "Download CSV",
  gpuHours: "GPU-hours",
  cost: "Cost",
  noPrice: "nobody has set a price",
  goodput: "Goodput",
  ettr: "ETTR",
  goodputHint: "share of held GPU time that moved training forward",
  tasks: "Tasks",
  parts: "What the time went into",
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
    training: "steps that nobody had trained before",
    open: "held at this moment, and not sorted yet",
    saving: "from when it was asked to end until it had",
    starting: "until the first step",
    redone: "steps that were trained again after a restart",
    lost: "failures, and the wait after them",
    hung: "ranks did not advance",
    idle: "environments were held and nothing ran",
  },
  count_one: "{{count, number}} row",
  count_other: "{{count, number}} rows",
  empty: "Nothing was used in this time",
  emptyHint: "The time for which tasks hold environments is booked here.",
};
export default en;

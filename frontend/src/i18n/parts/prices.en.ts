import type { Translated } from "../zh";
import type zh from "./prices.zh";

const en: Translated<typeof zh> = {
  title: "Prices",
  hint: "The most specific price applies: of a type in a zone, of a type, of a zone, of all. Changes apply from now on; recorded usage keeps its price.",
  add: "Add price",
  change: "Change",
  changeOf: "Change price: {{name}}",
  removeOf: "Remove price: {{name}}",
  removeTitle: "Remove the price of {{name}}?",
  removeHint: "From now on a more general price applies here; without a price, no cost is calculated.",
  gpuType: "GPU type",
  perGpuHour: "Per GPU-hour",
  since: "Since",
  anyType: "any type",
  anyZone: "any zone",
  emptyIsAny: "Empty = any type",
  empty: "No prices yet",
  emptyHint: "Once administrators set prices, usage has a cost and projects can have budgets.",
};
export default en;

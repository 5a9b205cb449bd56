import type { Translated } from "../zh";
import type zh from "./prices.zh";

const en: Translated<typeof zh> = {
  title: "Prices",
  hint: "The most exact price counts: of a type in a zone, of a type, of a zone, of any. A change holds from now on; what is booked keeps its price.",
  add: "Add price",
  change: "Change",
  changeOf: "Change price: {{name}}",
  removeOf: "Remove price: {{name}}",
  removeTitle: "Remove the price of {{name}}?",
  removeHint: "From now on a more general price counts here; without one there is no cost.",
  gpuType: "GPU type",
  perGpuHour: "A GPU-hour",
  since: "Since",
  anyType: "any type",
  anyZone: "any zone",
  emptyIsAny: "Empty = any type",
  empty: "No prices yet",
  emptyHint: "Once administrators set prices, usage has a cost and projects can have budgets.",
};
export default en;

import { bench } from "vitest";
import type { TelemetrySeries } from "@/api/types";
import { buildPanels } from "./chart-data";

const RANKS = 512;
const MOMENTS = 300;
const series = Array.from({ length: RANKS }, (_, rank): TelemetrySeries => ({
  ...{ metric: "gpu", unit: "%", index: String(rank), node: 0, rank, most: null },
  values: Array.from({ length: MOMENTS }, (_, at) => ((rank * 7919 + at * 104729) % 1000) / 10),
}));

bench(`${RANKS} ranks at ${MOMENTS} moments become a band`, () => {
  buildPanels(series, ["gpu"]);
});

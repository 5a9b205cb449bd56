import type { Sweep, SweepTrial } from "@/api/types";

export type Value = string | number | boolean;

/** A trial with its objective, and the best objective up to it. */
export interface RatedTrial {
  number: number;
  value: number;
  best: number;
}

/** Returns the trials that have an objective, by number. */
export function rateTrials(trials: SweepTrial[], goal: Sweep["goal"]): RatedTrial[] {
  const rated: RatedTrial[] = [];
  let best: number | undefined;
  for (const { number, value } of [...trials].sort((one, other) => one.number - other.number)) {
    if (value === null) continue;
    best = best === undefined ? value : goal === "minimize" ? Math.min(best, value) : Math.max(best, value);
    rated.push({ number, value, best });
  }
  return rated;
}

/** An axis of parallel coordinates. `place` returns where a value is, from 0 (bottom) to 1; null: it has no place. */
export interface Axis {
  name: string;
  low: string;
  high: string;
  place: (value: Value | null | undefined) => number | null;
}

/** Ranges that span so many powers of ten get a logarithmic axis. */
const LOGARITHMIC_POWERS = 2;

/** Returns the axis that holds all of the values: of numbers by size, of others by their order. */
export function buildAxis(name: string, values: (Value | null | undefined)[], format: (value: number) => string): Axis {
  const known = values.filter((value) => value !== undefined && value !== null);
  if (known.length > 0 && known.every((value) => typeof value === "number")) {
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const isLogarithmic = low > 0 && Math.log10(high / low) >= LOGARITHMIC_POWERS;
    const scale = (value: number) => (isLogarithmic ? Math.log(value) : value);
    const span = scale(high) - scale(low);
    return {
      name,
      low: format(low),
      high: format(high),
      place: (value) => (typeof value !== "number" ? null : span === 0 ? 0.5 : (scale(value) - scale(low)) / span),
    };
  }
  const texts = [...new Set(known.map(String))].sort();
  return {
    name,
    low: texts[0] ?? "",
    high: texts.length > 1 ? (texts.at(-1) ?? "") : "",
    place: (value) => {
      const index = value === undefined || value === null ? -1 : texts.indexOf(String(value));
      return index < 0 ? null : texts.length === 1 ? 0.5 : index / (texts.length - 1);
    },
  };
}

/** Returns how good an objective is among all: 1 is the best. */
export function computeQuality(value: number, values: number[], goal: Sweep["goal"]): number {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  if (low === high) return 1;
  const share = (value - low) / (high - low);
  return goal === "minimize" ? 1 - share : share;
}

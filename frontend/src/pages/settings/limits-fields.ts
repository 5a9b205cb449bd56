import type { Limits } from "@/api/types";
import { parseNumber } from "@/lib/parse-input";

/** The dialog's fields, by the API's names. */
export const FIELDS = [
  "weight",
  "guaranteedGpus",
  "mostGpus",
  "mostTasks",
  "gpuHours",
  "longestRunSeconds",
  "gpuTypes",
  "zones",
  "priorities",
  "userMostGpus",
  "userMostTasks",
  "userGpuHours",
  "budget",
  "atBudget",
  "maxFileBytes",
  "maxCacheBytes",
  "maxEnvironments",
  "maxEnvironmentGpus",
  "userMaxEnvironments",
  "userMaxEnvironmentGpus",
] as const;
type Texts = Record<(typeof FIELDS)[number], string>;

const HOUR = 3600;
const GIB = 2 ** 30;
const LISTS = ["gpuTypes", "zones", "priorities"] as const;
const NUMBERS = [
  "guaranteedGpus",
  "mostGpus",
  "mostTasks",
  "gpuHours",
  "userMostGpus",
  "userMostTasks",
  "userGpuHours",
  "budget",
  "maxEnvironments",
  "maxEnvironmentGpus",
  "userMaxEnvironments",
  "userMaxEnvironmentGpus",
] as const;

/**
 * Returns null (no limit) for an empty text. Invalid numbers are returned as typed, so that the platform says what is
 * wrong.
 */
export function parseNumberOrNull(text: string | undefined): number | string | null {
  return text?.trim() ? parseNumber(text) : null;
}

/** Returns the texts of the fields: the longest run in hours, sizes in GiB. */
export function formatLimits(limits: Limits): Texts {
  const numbers = NUMBERS.map((name) => [name, limits[name] === null ? "" : String(limits[name])]);
  const lists = LISTS.map((name) => [name, limits[name].join(", ")]);
  const { weight, longestRunSeconds, atBudget } = limits;
  const longest = longestRunSeconds === null ? "" : String(longestRunSeconds / HOUR);
  return {
    ...(Object.fromEntries([...numbers, ...lists]) as Texts),
    weight: String(weight),
    longestRunSeconds: longest,
    atBudget,
    maxFileBytes: formatGib(limits.maxFileBytes),
    maxCacheBytes: formatGib(limits.maxCacheBytes),
  };
}

const formatGib = (bytes: number | null) => (bytes === null ? "" : String(bytes / GIB));

function parseGib(text: string | undefined): number | string | null {
  const value = parseNumberOrNull(text);
  return typeof value === "number" ? Math.round(value * GIB) : value;
}

export function parseLimits(texts: Record<string, string>): Record<string, unknown> {
  const longest = parseNumberOrNull(texts.longestRunSeconds);
  const listed = (text = "") =>
    text
      .split(/[,，]/)
      .map((each) => each.trim())
      .filter(Boolean);
  return {
    ...Object.fromEntries(NUMBERS.map((name) => [name, parseNumberOrNull(texts[name])])),
    ...Object.fromEntries(LISTS.map((name) => [name, listed(texts[name])])),
    weight: parseNumber(texts.weight ?? ""),
    longestRunSeconds: typeof longest === "number" ? Math.round(longest * HOUR) : longest,
    atBudget: texts.atBudget,
    maxFileBytes: parseGib(texts.maxFileBytes),
    maxCacheBytes: parseGib(texts.maxCacheBytes),
  };
}

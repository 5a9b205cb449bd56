import { useQuery } from "@tanstack/react-query";
import { comparisonQuery } from "@/api/compare";
import { runColumnsQuery } from "@/api/runs";
import { useDebounced } from "@/lib/hooks";
import { splitCurve } from "@/pages/runs/columns";
import type { Goal } from "./draft";

const SEARCH_AFTER_MS = 300;
const PREFIX = "metric.";

/**
 * Returns the metrics that earlier runs reported, those of `task` first, and the goal that the platform's rule gives
 * for the metric that was typed; undefined: it has none.
 */
export function useMetricRules(task: string | null, typed: string): { names: string[]; goal: Goal | undefined } {
  const search = useDebounced(typed.trim(), SEARCH_AFTER_MS);
  const own = useQuery(comparisonQuery(task ? [task] : [], false)).data?.metrics ?? [];
  const usual = useQuery(runColumnsQuery("")).data ?? [];
  const found = useQuery({ ...runColumnsQuery(search), enabled: search !== "" }).data ?? [];
  const rules = new Map<string, boolean | null>();
  for (const { name, group, higherIsBetter } of [...usual, ...found]) {
    const base = splitCurve(name)?.base.slice(PREFIX.length);
    if (group === "metric" && base) rules.set(base, higherIsBetter);
  }
  const higher = rules.get(typed.trim());
  return {
    names: [...new Set([...own.map(({ name }) => name), ...rules.keys()])],
    goal: higher == null ? undefined : higher ? "maximize" : "minimize",
  };
}

import { useCallback, useMemo } from "react";
import { useSearchParams } from "react-router";
import { type Axis, MAX_METRICS, MAX_RUNS } from "@/api/compare";

export const AXES: Axis[] = ["step", "relativeTime", "time", "tokens", "samples", "gpuHours"];
export const STATISTICS = ["last", "min", "max"] as const;
export type Statistic = (typeof STATISTICS)[number];
export const MAX_SMOOTHING = 0.99;
export const COLOR_COUNT = 7;

/** All that the page shows: the address holds it, so that a link shows the same. */
export interface View {
  tasks: string[];
  /** Empty: the page chooses. */
  metrics: string[];
  axis: Axis;
  smoothing: number;
  log: boolean;
  /** The lowest and highest value of each place are shaded. */
  extremes: boolean;
  from: number | undefined;
  to: number | undefined;
  hidden: Set<string>;
  /** Numbers of chosen colours by run. */
  colors: Map<string, number>;
  /** The parameter by whose values runs are joined into bands; empty: none. */
  group: string;
  /** The parameter that the scatter plot has on its horizontal axis; empty: the page chooses. */
  parameter: string;
  statistic: Statistic;
  /** Without the frame of the console. */
  embed: boolean;
}

/** Returns the view that an address has; what it does not say, or says wrongly, is the default. */
export function parseView(params: URLSearchParams): View {
  return {
    tasks: splitList(params.get("tasks")).slice(0, MAX_RUNS),
    metrics: [...new Set(params.getAll("metric").filter(Boolean))].slice(0, MAX_METRICS),
    axis: AXES.find((axis) => axis === params.get("axis")) ?? "step",
    smoothing: Math.min(MAX_SMOOTHING, Math.max(0, parseNumber(params.get("smooth")) ?? 0)),
    log: params.get("log") === "1",
    extremes: params.get("extremes") === "1",
    from: parseNumber(params.get("from")),
    to: parseNumber(params.get("to")),
    hidden: new Set(splitList(params.get("hide"))),
    colors: new Map(
      splitList(params.get("colors")).flatMap((entry) => {
        const [task = "", color = ""] = entry.split(":");
        const number = Number(color);
        return task && Number.isInteger(number) && number >= 0 && number < COLOR_COUNT ? [[task, number]] : [];
      }),
    ),
    group: params.get("group") ?? "",
    parameter: params.get("parameter") ?? "",
    statistic: STATISTICS.find((one) => one === params.get("statistic")) ?? "last",
    embed: params.get("embed") === "1",
  };
}

/** Returns the address of a view; defaults are left out. */
export function formatView(view: View): URLSearchParams {
  const params = new URLSearchParams();
  const set = (name: string, value: string | number | undefined | false) => {
    if (value !== undefined && value !== "" && value !== false) params.set(name, String(value));
  };
  set("tasks", view.tasks.join(","));
  for (const metric of view.metrics) params.append("metric", metric);
  set("axis", view.axis !== "step" && view.axis);
  set("smooth", view.smoothing > 0 && view.smoothing);
  set("log", view.log && 1);
  set("extremes", view.extremes && 1);
  set("from", view.from);
  set("to", view.to);
  set("hide", [...view.hidden].join(","));
  set("colors", [...view.colors].map(([task, color]) => `${task}:${color}`).join(","));
  set("group", view.group);
  set("parameter", view.parameter);
  set("statistic", view.statistic !== "last" && view.statistic);
  set("embed", view.embed && 1);
  return params;
}

/** Returns the view of the address, and a function that changes it. */
export function useView() {
  const [params, setParams] = useSearchParams();
  const view = useMemo(() => parseView(params), [params]);
  const change = useCallback(
    (to: Partial<View>) =>
      setParams((now) => formatView({ ...parseView(now), ...to }), { replace: true, preventScrollReset: true }),
    [setParams],
  );
  return { view, change };
}

function splitList(text: string | null): string[] {
  return [...new Set((text ?? "").split(",").filter(Boolean))];
}

function parseNumber(text: string | null): number | undefined {
  const number = Number(text);
  return text && Number.isFinite(number) ? number : undefined;
}

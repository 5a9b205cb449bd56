import { useCallback, useMemo } from "react";
import { useSearchParams } from "react-router";
import type { TimeRange } from "@/api/telemetry";
import { useLocalStorage } from "@/lib/use-local-storage";
import { DEFAULT_PANELS, type PanelId } from "./metrics";

type Name = "from" | "to" | "nodes" | "ranks" | "range";

/**
 * Returns the time range, nodes and ranks from the address, so that they can be shared and survive a change of tabs.
 */
export function useChartUrlState() {
  const [params, setParams] = useSearchParams();
  const change = useCallback(
    (texts: Partial<Record<Name, string>>) =>
      setParams(
        (now) => {
          const next = new URLSearchParams(now);
          for (const [name, text] of Object.entries(texts)) {
            if (text) next.set(name, text);
            else next.delete(name);
          }
          return next;
        },
        { replace: true, preventScrollReset: true },
      ),
    [setParams],
  );
  const [from, to] = [Number(params.get("from")), Number(params.get("to"))];
  const stretch = useMemo(() => (from > 0 && to > from ? { from: from * 1000, to: to * 1000 } : undefined), [from, to]);
  const zoom = useCallback(
    (stretch: TimeRange | undefined) =>
      change({
        from: stretch ? String(Math.floor(stretch.from / 1000)) : "",
        to: stretch ? String(Math.ceil(stretch.to / 1000)) : "",
      }),
    [change],
  );
  const text = (name: Name) => params.get(name) ?? "";
  return { text, change, stretch, zoom };
}

/** Returns the charts that the user selected in this browser, of those available. */
export function useVisiblePanels(ids: PanelId[]) {
  const [text, remember] = useLocalStorage("machines.charts");
  const chosen = useMemo(() => (text === null ? DEFAULT_PANELS : text.split(",")), [text]);
  const panels = useMemo(() => ids.filter((id) => chosen.includes(id)), [ids, chosen]);
  const toggle = (id: PanelId) =>
    remember((chosen.includes(id) ? chosen.filter((each) => each !== id) : [...chosen, id]).join(","));
  return { panels, toggle, reset: text === null ? undefined : () => remember(null) };
}

import { useSearchParams } from "react-router";
import { setFilter } from "./url-filters";
import { useLocalStorage } from "./use-local-storage";

/** Returns whether lists have rows of one line, and a setter. */
export function useCompactRows(): [boolean, (dense: boolean) => void] {
  const [value, remember] = useLocalStorage("dense");
  return [value === "on", (dense) => remember(dense ? "on" : null)];
}

/** Parameters of the address that set how a list looks, not what it holds. */
const SETTING_PARAMS = ["ordering", "hide"];

/** Removes all filters; sort order and columns stay. */
export function removeFilters(params: URLSearchParams): URLSearchParams {
  return new URLSearchParams([...params].filter(([name]) => SETTING_PARAMS.includes(name)));
}

/** Returns the sort order and the hidden columns of a list from the address. Unknown orders are ignored. */
export function useTableSettings(orders: readonly string[]) {
  const [params, setParams] = useSearchParams();
  const request = params.get("ordering") ?? "";
  const hidden = params.get("hide")?.split(",") ?? [];
  const set = (name: string, value: string) => setParams((now) => setFilter(now, name, value), { replace: true });
  return {
    ordering: orders.includes(request.replace(/^-/, "")) ? request : undefined,
    onOrder: (ordering: string) => set("ordering", ordering),
    hidden,
    onHide: (id: string) =>
      set("hide", (hidden.includes(id) ? hidden.filter((each) => each !== id) : [...hidden, id]).join(",")),
  };
}

import { useSearchParams } from "react-router";
import { setFilter } from "./url-filters";
import { useLocalStorage } from "./use-local-storage";

/** Rows of one line instead of two or three, in every list. */
export function useCompactRows(): [boolean, (dense: boolean) => void] {
  const [value, remember] = useLocalStorage("dense");
  return [value === "on", (dense) => remember(dense ? "on" : null)];
}

/** What of an address says how a list looks, and not what is in it. */
const SETTING_PARAMS = ["ordering", "hide"];

/** Without any filter, and in the same order and columns. */
export function removeFilters(params: URLSearchParams): URLSearchParams {
  return new URLSearchParams([...params].filter(([name]) => SETTING_PARAMS.includes(name)));
}

/** The order and the columns of a list, as the address has them. An order that there is none of is passed over. */
export function useTableSettings(orders: readonly string[]) {
  const [params, setParams] = useSearchParams();
  const asked = params.get("ordering") ?? "";
  const hidden = params.get("hide")?.split(",") ?? [];
  const set = (name: string, value: string) => setParams((now) => setFilter(now, name, value), { replace: true });
  return {
    ordering: orders.includes(asked.replace(/^-/, "")) ? asked : undefined,
    onOrder: (ordering: string) => set("ordering", ordering),
    hidden,
    onHide: (id: string) =>
      set("hide", (hidden.includes(id) ? hidden.filter((each) => each !== id) : [...hidden, id]).join(",")),
  };
}

import { useSearchParams } from "react-router";
import { withFilter } from "./filters";
import { useRemembered } from "./remembered";

/** Rows of one line instead of two or three, in every list. */
export function useDense(): [boolean, (dense: boolean) => void] {
  const [value, remember] = useRemembered("dense");
  return [value === "on", (dense) => remember(dense ? "on" : null)];
}

/** What of an address says how a list looks, and not what is in it. */
const LOOK = ["ordering", "hide"];

/** Without any filter, and in the same order and columns. */
export function withoutFilters(params: URLSearchParams): URLSearchParams {
  return new URLSearchParams([...params].filter(([name]) => LOOK.includes(name)));
}

/** The order and the columns of a list, as the address has them. An order that there is none of is passed over. */
export function useListLook(orders: readonly string[]) {
  const [params, setParams] = useSearchParams();
  const asked = params.get("ordering") ?? "";
  const hidden = params.get("hide")?.split(",") ?? [];
  const set = (name: string, value: string) => setParams((now) => withFilter(now, name, value), { replace: true });
  return {
    ordering: orders.includes(asked.replace(/^-/, "")) ? asked : undefined,
    onOrder: (ordering: string) => set("ordering", ordering),
    hidden,
    onHide: (id: string) =>
      set("hide", (hidden.includes(id) ? hidden.filter((each) => each !== id) : [...hidden, id]).join(",")),
  };
}

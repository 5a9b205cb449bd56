import { useSearchParams } from "react-router";
import { removeFilters } from "./use-table-settings";
import { readPageNumber, readFilterTexts, setFilter } from "./url-filters";

/** Returns the filters of a list from the address, with their setters. */
export function useFilters<Name extends string>(names: readonly Name[]) {
  const [params, setParams] = useSearchParams();
  const filters = readFilterTexts(params, names);
  const set = (name: Name | "page", value: string) =>
    setParams((now) => setFilter(now, name, value), { replace: true });
  /** Returns `value` and `onChange` for the control of a filter. */
  const of = (name: Name) => ({ value: filters[name] ?? "", onChange: (value: string) => set(name, value) });
  return { filters, page: readPageNumber(params), set, of, clear: () => setParams(removeFilters) };
}

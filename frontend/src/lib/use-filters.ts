import { useSearchParams } from "react-router";
import { removeFilters } from "./use-table-settings";
import { readPageNumber, readFilterTexts, setFilter } from "./url-filters";

/** The filters of a list by these names, as the address has them, and how they are changed. */
export function useFilters<Name extends string>(names: readonly Name[]) {
  const [params, setParams] = useSearchParams();
  const filters = readFilterTexts(params, names);
  const set = (name: Name | "page", value: string) =>
    setParams((now) => setFilter(now, name, value), { replace: true });
  /** What a control for one of them takes. */
  const of = (name: Name) => ({ value: filters[name] ?? "", onChange: (value: string) => set(name, value) });
  return { filters, page: readPageNumber(params), set, of, clear: () => setParams(removeFilters) };
}

import { useSearchParams } from "react-router";
import { isPlainAddress, readTableState, type TableState, writeTableState } from "./table-state";

/** The view that shows all runs as a new table does, whatever the default view is. */
export const ALL_RUNS = "all";

/** Returns what the table shows, from the address, with functions that change it. */
export function useTableState() {
  const [params, setParams] = useSearchParams();
  return {
    state: readTableState(params),
    /** The id of the view that was opened last. */
    view: params.get("view"),
    isPlain: isPlainAddress(params),
    change: (patch: Partial<TableState>) =>
      setParams((now) => writeTableState({ ...readTableState(now), ...patch }, now.get("view") ?? ALL_RUNS), {
        replace: true,
      }),
    open: (state: TableState, view: string, replace = false) => setParams(writeTableState(state, view), { replace }),
  };
}

export type ChangeTable = ReturnType<typeof useTableState>["change"];

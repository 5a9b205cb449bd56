import { useQueries } from "@tanstack/react-query";
import { useState } from "react";
import { groupRunsQuery } from "@/api/runs";
import type { Run, RunGroup, RunSearch } from "@/api/types";
import { getGroupId, type GroupRuns, type Line, listGroups, listRuns } from "./lines";
import { narrowQuery } from "./query-text";

/** Returns the lines of the table, and a function that opens or closes a group. */
export function useLines(search: RunSearch, groupBy: string[], runs: Run[], groups: RunGroup[] | undefined) {
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const open = groups?.filter((group) => opened.has(getGroupId(group))) ?? [];
  const answers = useQueries({
    queries: open.map(({ key }) => groupRunsQuery({ ...search, query: narrowQuery(search.query ?? "", groupBy, key) })),
  });
  const inside = new Map<string, GroupRuns>(
    open.map((group, index) => {
      const answer = answers[index];
      return [getGroupId(group), { runs: answer?.data?.items ?? [], isPending: answer?.isPending ?? true }];
    }),
  );
  const lines: Line[] = groups ? listGroups(groups, inside) : listRuns(runs);
  const toggle = (id: string) => {
    const next = new Set(opened);
    if (!next.delete(id)) next.add(id);
    setOpened(next);
  };
  return { lines, toggle };
}

import { useCallback, useState } from "react";
import { useSearchParams } from "react-router";
import type { RankChoice } from "@/api/logs";
import type { Diagnosis, Task } from "@/api/types";
import { setFilter } from "@/lib/url-filters";

/** The default tab, which the address omits. */
export const DEFAULT_TAB = "logs";

/** Returns the ranks that open findings of the newest attempt name as a cause, the worst first. */
export function listBlamedRanks(diagnosis: Diagnosis | undefined, attempt: number): number[] {
  const open = diagnosis?.findings.filter(
    (finding) => finding.until == null && finding.level !== "info" && finding.attempt === attempt,
  );
  return [...new Set(open?.flatMap(({ where }) => where.flatMap(({ rank }) => rank ?? [])))];
}

/**
 * Returns the open tab and the selected rank from the address. By default it is the first rank that is blamed or that
 * failed; this changes at most once in an attempt, so that the log that is being read stays.
 */
export function useTaskUrlState(task: Task, blamed: number[]) {
  const [params, setParams] = useSearchParams();
  const { attempt, worldSize } = task;
  const [first, setFirst] = useState<{ attempt: number; rank: number }>();
  const worst = blamed[0];
  if (worst !== undefined && first?.attempt !== attempt) setFirst({ attempt, rank: worst });
  const proposed = first?.attempt === attempt ? first.rank : (task.attempts.at(-1)?.failedRank ?? 0);
  const rank: RankChoice = parseRank(params.get("rank"), worldSize) ?? proposed;
  const show = useCallback(
    (to: { tab?: string; rank?: RankChoice }) =>
      setParams(
        (now) => {
          const tab = to.tab === undefined ? now : setFilter(now, "tab", to.tab === DEFAULT_TAB ? "" : to.tab);
          return to.rank === undefined ? tab : setFilter(tab, "rank", String(to.rank));
        },
        { replace: true, preventScrollReset: true },
      ),
    [setParams],
  );
  return { tab: params.get("tab") ?? DEFAULT_TAB, rank, show };
}

function parseRank(text: string | null, worldSize: number): RankChoice | undefined {
  if (text === "all") return "all";
  return text && /^\d+$/.test(text) && Number(text) < worldSize ? Number(text) : undefined;
}

import { useQuery } from "@tanstack/react-query";
import { ArrowDownToLine, Download } from "lucide-react";
import { useDeferredValue, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { downloadAddress, logQuery, type LogLine, plain, type RankChoice } from "@/api/logs";
import type { Task } from "@/api/types";
import { integer } from "@/lib/format";
import { Button, ButtonAnchor } from "@/ui/button";
import { Failure, Loading } from "@/ui/failure";
import { Rows } from "@/ui/rows";
import { Search } from "./search";

interface LogViewProps {
  task: Task;
  rank: RankChoice;
  onRank: (rank: RankChoice) => void;
}

const NONE: LogLine[] = [];

export function LogView({ task, rank, onRank }: LogViewProps) {
  const { t } = useTranslation();
  const [chosenAttempt, setAttempt] = useState<number>();
  const [search, setSearch] = useState("");
  const [follow, setFollow] = useState(true);
  const attempt = chosenAttempt ?? task.attempt;
  const log = useQuery({ ...logQuery(task.taskId, attempt, rank), enabled: attempt > 0 });
  const lines = log.data?.lines ?? NONE;
  const needle = useDeferredValue(search.toLowerCase());
  const [finder] = useState(() => new Search());
  const shown = useMemo(() => finder.among(lines, needle), [finder, lines, needle]);
  return (
    <div className="space-y-3">
      <div className="flex flex-wrap items-center gap-2">
        <select
          aria-label={t("logs.rank")}
          className="control w-auto max-w-full"
          value={rank}
          onChange={({ target }) => onRank(target.value === "all" ? "all" : Number(target.value))}
        >
          <option value="all">{t("logs.allRanks")}</option>
          {task.ranks.map((each) => (
            <option key={each.rank} value={each.rank}>
              {t("task.rank", { rank: each.rank })} · {task.nodes.find((node) => node.nodeRank === each.nodeRank)?.name}
            </option>
          ))}
        </select>
        {task.attempts.length > 1 && (
          <select
            aria-label={t("logs.attempt")}
            className="control w-auto"
            value={attempt}
            onChange={({ target }) => setAttempt(Number(target.value))}
          >
            {task.attempts.map(({ number }) => (
              <option key={number} value={number}>
                {t("task.attempt", { number })}
              </option>
            ))}
          </select>
        )}
        <input
          type="search"
          aria-label={t("logs.search")}
          placeholder={t("logs.search")}
          className="control w-full sm:w-56"
          value={search}
          onChange={({ target }) => setSearch(target.value)}
        />
        <span role="status" className="text-sm text-muted tabular-nums">
          {needle ? t("logs.matches", { count: shown.length }) : t("logs.lines", { count: lines.length })}
        </span>
        <div className="ml-auto flex gap-2">
          <Button aria-pressed={follow} look={follow ? "primary" : "secondary"} onClick={() => setFollow(!follow)}>
            <ArrowDownToLine />
            {t("logs.follow")}
          </Button>
          <ButtonAnchor href={downloadAddress(task.taskId, attempt, rank)} download>
            <Download />
            {t("logs.download")}
          </ButtonAnchor>
        </div>
      </div>
      {rank !== "all" && task.attempts.find(({ number }) => number === attempt)?.failedRank === rank && (
        <p className="text-sm text-muted">{t("logs.failedFirst", { rank })}</p>
      )}
      {log.isError && <Failure error={log.error} retry={() => void log.refetch()} />}
      {log.data?.cut && <p className="text-sm text-muted">{t("logs.cut", { lines: integer(lines.length) })}</p>}
      {log.isPending && attempt > 0 ? (
        <Loading />
      ) : shown.length === 0 ? (
        <p className="rounded-lg border bg-sunken px-3 py-10 text-center text-sm text-muted">
          {needle ? t("logs.noMatch") : t("logs.empty")}
        </p>
      ) : (
        <Rows
          count={shown.length}
          height={20}
          label={t("logs.label")}
          follow={follow && !needle}
          onFollow={setFollow}
          className="h-112 overflow-auto rounded-lg border bg-sunken py-2 font-mono text-xs leading-5"
        >
          {(index) => <LogRow line={shown[index]} withRank={rank === "all"} needle={needle} />}
        </Rows>
      )}
    </div>
  );
}

function LogRow({ line, withRank, needle }: { line: LogLine | undefined; withRank: boolean; needle: string }) {
  if (!line) return null;
  const text = plain(line.text);
  return (
    <div className="h-5 px-3 whitespace-pre hover:bg-line/50">
      {withRank && <span className="mr-3 inline-block w-6 text-right text-accent-ink select-none">{line.rank}</span>}
      {needle ? <Marked text={text} needle={needle} /> : text}
    </div>
  );
}

function Marked({ text, needle }: { text: string; needle: string }) {
  const at = text.toLowerCase().indexOf(needle);
  if (at === -1) return text;
  const end = at + needle.length;
  return (
    <>
      {text.slice(0, at)}
      <mark>{text.slice(at, end)}</mark>
      {text.slice(end)}
    </>
  );
}

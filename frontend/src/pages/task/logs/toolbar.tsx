import { CircleAlert, Clock, Columns2, Link2, Regex } from "lucide-react";
import { type ReactNode, useId, useState } from "react";
import { useTranslation } from "react-i18next";
import type { LogFilter } from "@/api/log-search";
import type { LogLevel } from "@/api/logs";
import { cx } from "@/lib/cx";
import { Button } from "@/ui/button";
import { parseLocalTime, formatLocalTime } from "./log-times";

const LEVELS = ["warning", "error"] as const satisfies LogLevel[];

interface ToolbarProps {
  filter: LogFilter;
  onFilter: (filter: LogFilter) => void;
  /** The error in the expression. */
  problem: string | undefined;
  withTime: boolean;
  onWithTime: (on: boolean) => void;
  /** An ISO time to start from. */
  begun: string;
  onTime: (iso: string) => void;
  onError: () => void;
  lookingForError: boolean;
  /** Whether logs scroll together; undefined with a single log. */
  linked: boolean | undefined;
  onLinked: (on: boolean) => void;
  /** Undefined if no more logs fit. */
  onAdd: (() => void) | undefined;
}

/** Controls that all open logs share. */
export function Toolbar(props: ToolbarProps) {
  const { filter, onFilter, problem, onError, lookingForError, linked, onLinked, onAdd } = props;
  const { t } = useTranslation();
  const [timesOpen, setTimesOpen] = useState(false);
  const id = useId();
  const timed = Boolean(filter.since ?? filter.until);
  return (
    <div className="space-y-2">
      <div className="flex flex-wrap items-center gap-2">
        <div className="relative w-full sm:w-64">
          <input
            type="search"
            aria-label={t("logs.search")}
            aria-invalid={problem ? true : undefined}
            aria-describedby={problem ? `${id}-problem` : undefined}
            placeholder={t(filter.regex ? "logs.regex" : "logs.search")}
            spellCheck={false}
            maxLength={200}
            className={cx("control pr-11", filter.regex && "font-mono")}
            value={filter.search}
            onChange={({ target }) => onFilter({ ...filter, search: target.value })}
          />
          <button
            type="button"
            aria-pressed={filter.regex}
            aria-label={t("logs.regex")}
            title={t("logs.regex")}
            className={cx(
              "absolute inset-y-1 right-1 flex w-8 items-center justify-center rounded-md",
              filter.regex ? "bg-accent text-white" : "text-muted hover:bg-sunken hover:text-ink",
            )}
            onClick={() => onFilter({ ...filter, regex: !filter.regex })}
          >
            <Regex aria-hidden className="size-4" />
          </button>
        </div>
        <select
          aria-label={t("logs.level")}
          className="control w-auto"
          value={filter.level ?? ""}
          onChange={({ target }) => onFilter({ ...filter, level: LEVELS.find((level) => level === target.value) })}
        >
          <option value="">{t("logs.allLevels")}</option>
          {LEVELS.map((level) => (
            <option key={level} value={level}>
              {t(`logs.from.${level}`)}
            </option>
          ))}
        </select>
        <Button
          aria-expanded={timesOpen}
          look={timed ? "primary" : "secondary"}
          className={cx(timesOpen && !timed && "bg-sunken")}
          onClick={() => setTimesOpen(!timesOpen)}
        >
          <Clock />
          {t("logs.time")}
        </Button>
        <div className="flex flex-wrap gap-2 sm:ml-auto">
          {linked !== undefined && (
            <Button
              aria-pressed={linked}
              look={linked ? "primary" : "secondary"}
              title={t("logs.togetherHint")}
              onClick={() => onLinked(!linked)}
            >
              <Link2 />
              {t("logs.together")}
            </Button>
          )}
          <Button
            aria-keyshortcuts="e"
            title={`${t("logs.firstError")} (e)`}
            disabled={lookingForError}
            onClick={onError}
          >
            <CircleAlert />
            {t("logs.firstError")}
          </Button>
          <Button disabled={!onAdd} onClick={onAdd}>
            <Columns2 />
            {t("logs.sideBySide")}
          </Button>
        </div>
      </div>
      {problem && (
        <p id={`${id}-problem`} className="text-sm text-bad-ink">
          {problem}
        </p>
      )}
      {timesOpen && <TimeControls {...props} />}
    </div>
  );
}

const TEN_MINUTES = 600_000;

function TimeControls({ filter, onFilter, withTime, onWithTime, begun, onTime }: ToolbarProps) {
  const { t } = useTranslation();
  const [goal, setGoal] = useState(() => formatLocalTime(begun));
  const iso = parseLocalTime(goal);
  const bound = (name: "since" | "until") => (
    <Labelled label={t(`logs.${name}`)}>
      <DateTimeField
        value={formatLocalTime(filter[name])}
        onChange={(value) => onFilter({ ...filter, [name]: parseLocalTime(value) })}
      />
    </Labelled>
  );
  return (
    <div className="flex flex-wrap items-center gap-x-4 gap-y-2 rounded-lg border bg-canvas p-2 text-sm">
      {bound("since")}
      {bound("until")}
      <div className="flex gap-2">
        <Button
          size="sm"
          onClick={() => onFilter({ ...filter, since: new Date(Date.now() - TEN_MINUTES).toISOString() })}
        >
          {t("logs.lastMinutes")}
        </Button>
        <Button
          size="sm"
          look="ghost"
          disabled={!filter.since && !filter.until}
          onClick={() => onFilter({ ...filter, since: undefined, until: undefined })}
        >
          {t("logs.anyTime")}
        </Button>
      </div>
      <form
        className="flex flex-wrap items-center gap-2"
        onSubmit={(event) => {
          event.preventDefault();
          if (iso) onTime(iso);
        }}
      >
        <Labelled label={t("logs.goTo")}>
          <DateTimeField value={goal} onChange={setGoal} />
        </Labelled>
        <Button size="sm" type="submit" disabled={!iso}>
          {t("logs.go")}
        </Button>
      </form>
      <label className="flex items-center gap-2">
        <input type="checkbox" checked={withTime} onChange={({ target }) => onWithTime(target.checked)} />
        {t("logs.withTime")}
      </label>
    </div>
  );
}

function Labelled({ label, children }: { label: string; children: ReactNode }) {
  return (
    <label className="flex items-center gap-2">
      <span className="whitespace-nowrap text-muted">{label}</span>
      {children}
    </label>
  );
}

function DateTimeField({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  return (
    <input
      type="datetime-local"
      step={1}
      className="control h-8 w-auto px-2"
      value={value}
      onChange={({ target }) => onChange(target.value)}
    />
  );
}

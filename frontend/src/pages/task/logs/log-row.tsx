import { Crosshair } from "lucide-react";
import { type ReactNode, useMemo } from "react";
import { useTranslation } from "react-i18next";
import type { LogLevel, LogLine } from "@/api/logs";
import { chooseReadable, type ColouredRun, parseColours } from "@/lib/ansi";
import { cx } from "@/lib/cx";
import { formatTime, formatDateTime } from "@/lib/format";
import { type MatchFinder, useMatches } from "./match-finder";
import { findText, type MatchSpan } from "./matches";

const LEVEL_CLASSES: Partial<Record<LogLevel, string>> = {
  error: "bg-bad-soft",
  warning: "bg-warn-soft",
  debug: "text-muted",
};
const LEVEL_LETTERS: Partial<Record<LogLevel, readonly [string, string]>> = {
  error: ["E", "text-bad-ink"],
  warning: ["W", "text-warn-ink"],
  debug: ["D", ""],
};

interface LogRowProps {
  line: LogLine | undefined;
  withRank: boolean;
  withTime: boolean;
  /** The line to scroll to. */
  chosen: boolean;
  needle: string;
  marker: MatchFinder | undefined;
  /** Shows the line without the filter. */
  onShow: ((line: LogLine) => void) | undefined;
}

export function LogRow({ line, withRank, withTime, chosen, needle, marker, onShow }: LogRowProps) {
  const { t } = useTranslation();
  const runs = useMemo(() => (line?.printed ? parseColours(line.printed) : []), [line]);
  if (!line) return null;
  const { text } = line;
  const [sign, ink] = LEVEL_LETTERS[line.level ?? "info"] ?? ["", ""];
  const show = onShow && (() => onShow(line));
  const time = line.at === undefined ? undefined : new Date(line.at).toISOString();
  return (
    <div
      aria-current={chosen || undefined}
      onClick={show && (() => getSelection()?.isCollapsed !== false && show())}
      className={cx(
        "group flex h-5 px-2 whitespace-pre hover:bg-line/50",
        LEVEL_CLASSES[line.level ?? "info"],
        show && "cursor-pointer",
        chosen && "outline-2 -outline-offset-2 outline-accent-line",
      )}
    >
      {show && (
        <button
          type="button"
          data-rove
          tabIndex={-1}
          title={t("logs.inContext")}
          aria-label={t("logs.inContextOf", { text: text.slice(0, 80) })}
          onClick={(event) => {
            event.stopPropagation();
            show();
          }}
          className="mr-1 flex w-4 shrink-0 items-center text-muted opacity-40 -outline-offset-2 select-none group-hover:opacity-100 focus-visible:opacity-100"
        >
          <Crosshair aria-hidden className="size-3" />
        </button>
      )}
      <span className={cx("w-4 shrink-0 font-bold select-none", ink)}>
        {sign && (
          <abbr title={t(`logs.levelOf.${line.level ?? "info"}`)} className="no-underline">
            {sign}
          </abbr>
        )}
      </span>
      {withTime && (
        <span className="w-18 shrink-0 text-muted select-none" title={time && formatDateTime(time)}>
          {time && formatTime(time)}
        </span>
      )}
      {withRank && <span className="mr-3 w-6 shrink-0 text-right text-accent-ink select-none">{line.rank}</span>}
      <span>
        {marker ? (
          <ExpressionMatches text={text} runs={runs} marker={marker} />
        ) : (
          <HighlightedText text={text} runs={runs} spans={needle ? findText(text, needle) : []} />
        )}
      </span>
    </div>
  );
}

interface TextProps {
  text: string;
  runs: ColouredRun[];
}

function ExpressionMatches({ text, runs, marker }: TextProps & { marker: MatchFinder }) {
  return <HighlightedText text={text} runs={runs} spans={useMatches(marker, text) ?? []} />;
}

function HighlightedText({ text, runs, spans }: TextProps & { spans: MatchSpan[] }) {
  const part = (from: number, to: number | undefined) => <ColouredText text={text} runs={runs} from={from} to={to} />;
  if (spans.length === 0) return part(0, undefined);
  const ends = [0, ...spans.map(([, to]) => to)];
  return (
    <>
      {spans.map(([from, to], index) => (
        <span key={from}>
          {part(ends[index] ?? 0, from)}
          <mark>{text.slice(from, to)}</mark>
        </span>
      ))}
      {part(ends.at(-1) ?? 0, undefined)}
    </>
  );
}

/** The text from one place to another, in its colours. What is marked has the colours of the mark instead. */
function ColouredText({ text, runs, from, to = text.length }: TextProps & { from: number; to: number | undefined }) {
  const parts: ReactNode[] = [];
  let at = from;
  for (const run of runs) {
    const [begin, end] = [Math.max(run.from, at), Math.min(run.to, to)];
    if (begin >= end) continue;
    parts.push(text.slice(at, begin), <Run key={begin} run={run} text={text.slice(begin, end)} />);
    at = end;
  }
  parts.push(text.slice(at, to));
  return parts;
}

function Run({ run, text }: { run: ColouredRun; text: string }) {
  const { foreground, background } = run;
  const className = cx(
    !background && foreground && "printed-colour",
    run.reverse && "bg-ink text-sunken",
    run.bold && "font-bold",
    run.dim && !background && !foreground && "text-muted",
    run.italic && "italic",
    run.underline && "underline",
    run.strikethrough && "line-through",
  );
  const style = background
    ? { background: `rgb(${background})`, color: `rgb(${chooseReadable(foreground, background)})` }
    : foreground && { "--printed": `rgb(${foreground})` };
  return (
    <span className={className || undefined} style={style || undefined}>
      {text}
    </span>
  );
}

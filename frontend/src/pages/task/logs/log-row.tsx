import { Crosshair } from "lucide-react";
import { useTranslation } from "react-i18next";
import { type LogLevel, type LogLine, stripAnsi } from "@/api/logs";
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
  if (!line) return null;
  const text = stripAnsi(line.text);
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
          <ExpressionMatches text={text} marker={marker} />
        ) : (
          <HighlightedText text={text} spans={needle ? findText(text, needle) : []} />
        )}
      </span>
    </div>
  );
}

function ExpressionMatches({ text, marker }: { text: string; marker: MatchFinder }) {
  return <HighlightedText text={text} spans={useMatches(marker, text) ?? []} />;
}

function HighlightedText({ text, spans }: { text: string; spans: MatchSpan[] }) {
  if (spans.length === 0) return text;
  const ends = [0, ...spans.map(([, to]) => to)];
  return (
    <>
      {spans.map(([from, to], index) => (
        <span key={from}>
          {text.slice(ends[index], from)}
          <mark>{text.slice(from, to)}</mark>
        </span>
      ))}
      {text.slice(ends.at(-1))}
    </>
  );
}

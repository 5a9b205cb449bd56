import { useTranslation } from "react-i18next";
import { type ChartLine, findNewestIndex, getValueAt } from "./chart-data";
import { type ChartCursor, findNearestIndex, useChartCursor } from "./use-chart-cursor";
import { formatSeriesName } from "./labels";
import type { Curve } from "./time-chart";

interface Props {
  drawn: ChartLine[];
  curves: Curve[];
  moments: number[];
  cursor: ChartCursor;
  nodes: boolean;
  text: (value: number) => string;
  onEmphasis?: (place: number | undefined) => void;
}

/** Characters of a value. */
const VALUE = 11;
/** Returns a text's width; Chinese characters count twice. */
const getTextWidth = (text: string) => text.length + text.replaceAll(/[^\u2e80-\uffff]/g, "").length;

/** The lines of a chart with their values at the cursor, or the newest. Its height does not depend on the cursor. */
export function Legend({ drawn, curves, moments, cursor, nodes, text, onEmphasis }: Props) {
  const { t } = useTranslation();
  const chosen = useChartCursor(cursor, (at) => findNearestIndex(moments, at));
  const at = chosen ?? findNewestIndex(drawn.map(({ values }) => values));
  const message = (values: Curve["values"]) => {
    const value = getValueAt(values, at, chosen === null);
    return value === null ? "–" : text(value);
  };
  const many = drawn.some(({ role }) => role !== "line");
  const letters = Math.max(...curves.map(({ label }) => getTextWidth(label))) + (many ? 10 : 0) + VALUE;
  const entries = drawn.flatMap((each, place) => (each.role === "low" ? [] : [{ each, place }]));
  const low = drawn.find(({ role }) => role === "low");
  return (
    <ul
      className="mt-1 grid gap-x-4 text-xs"
      style={{ gridTemplateColumns: `repeat(auto-fill, minmax(min(100%, ${letters}ch), 1fr))` }}
      onPointerLeave={() => onEmphasis?.(undefined)}
    >
      {entries.map(({ each, place }) => {
        const whose = each.whose?.(at);
        const name = whose && formatSeriesName(t, whose, nodes);
        const curve = curves[place];
        return (
          <li
            key={each.key}
            className="flex h-5 min-w-0 items-center gap-1.5 rounded hover:bg-sunken"
            onPointerEnter={() => onEmphasis?.(each.role === "high" ? undefined : place)}
          >
            {curve && <Sample curve={curve} />}
            <span className="shrink-0 text-muted">{curve?.label}</span>
            {name && <span className="truncate font-medium">{name}</span>}
            <span className="ml-auto truncate tabular-nums">
              {each.role === "high" && low ? `${message(low.values)} – ${message(each.values)}` : message(each.values)}
            </span>
          </li>
        );
      })}
    </ul>
  );
}

function Sample({ curve: { color, dash, look } }: { curve: Curve }) {
  return (
    <svg aria-hidden viewBox="0 0 18 8" className="h-2 w-[18px] shrink-0">
      {look === "edge" ? (
        <rect width={18} height={8} style={{ fill: "var(--accent-line)", opacity: 0.3 }} />
      ) : (
        <path d="M0 4h18" style={{ stroke: `var(${color})` }} strokeWidth={2} strokeDasharray={dash?.join(" ")} />
      )}
    </svg>
  );
}

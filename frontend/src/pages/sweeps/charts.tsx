import { useTranslation } from "react-i18next";
import type { Sweep, SweepTrial } from "@/api/types";
import { formatNumber } from "@/lib/format";
import { type Value, buildAxis, computeQuality, rateTrials } from "./figures";

const WIDTH = 640;
const HEIGHT = 220;
const MARGIN = { left: 64, right: 16, top: 12, bottom: 28 };
const MAX_LINES = 500;

/** The objective of each trial, and the best one so far. */
export function HistoryChart({ trials, goal }: { trials: SweepTrial[]; goal: Sweep["goal"] }) {
  const { t } = useTranslation();
  const rated = rateTrials(trials, goal);
  const last = Math.max(1, ...trials.map(({ number }) => number));
  const values = rated.map(({ value }) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (number: number) => MARGIN.left + (number / last) * (WIDTH - MARGIN.left - MARGIN.right);
  const y = (value: number) =>
    HEIGHT -
    MARGIN.bottom -
    (high === low ? 0.5 : (value - low) / (high - low)) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  if (rated.length === 0) return <p className="text-sm text-muted">{t("sweep.coordinatesNone")}</p>;
  const steps = rated.map(({ number, best }, index) =>
    index === 0 ? `M${x(number)},${y(best)}` : `H${x(number)}V${y(best)}`,
  );
  return (
    <svg role="img" aria-label={t("sweep.historyLabel")} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} className="w-full">
      {[low, high].map((value, index) => (
        <g key={index}>
          <line x1={MARGIN.left} x2={WIDTH - MARGIN.right} y1={y(value)} y2={y(value)} stroke="var(--line)" />
          <text x={MARGIN.left - 6} y={y(value) + 4} textAnchor="end" fontSize={11} fill="var(--muted)">
            {formatNumber(value)}
          </text>
        </g>
      ))}
      <path d={steps.join("")} fill="none" stroke="var(--accent-ink)" strokeWidth={1.5} />
      {rated.map(({ number, value, best }) => (
        <circle
          key={number}
          cx={x(number)}
          cy={y(value)}
          r={value === best ? 4 : 3}
          fill={value === best ? "var(--accent-ink)" : "var(--muted)"}
        >
          <title>{`#${number}: ${formatNumber(value)}`}</title>
        </circle>
      ))}
      <text x={MARGIN.left} y={HEIGHT - 8} fontSize={11} fill="var(--muted)">
        #0
      </text>
      <text x={WIDTH - MARGIN.right} y={HEIGHT - 8} textAnchor="end" fontSize={11} fill="var(--muted)">
        #{last}
      </text>
    </svg>
  );
}

/** Each trial as a line over axes of its parameters and of its objective; better ones are drawn stronger. */
export function ParallelCoordinates({ trials, sweep }: { trials: SweepTrial[]; sweep: Sweep }) {
  const { t } = useTranslation();
  const rated = trials.filter(({ value }) => value !== null).slice(-MAX_LINES);
  if (rated.length < 2) return <p className="text-sm text-muted">{t("sweep.coordinatesNone")}</p>;
  const values = rated.map(({ value }) => value ?? 0);
  const names = [...new Set(rated.flatMap(({ parameters }) => Object.keys(parameters)))];
  const axes = [
    ...names.map((name) =>
      buildAxis(
        name,
        rated.map(({ parameters }) => parameters[name] as Value | undefined),
        formatNumber,
      ),
    ),
    buildAxis(sweep.metric, values, formatNumber),
  ];
  const width = Math.max(WIDTH, axes.length * 110);
  const x = (index: number) => 50 + (index / Math.max(1, axes.length - 1)) * (width - 100);
  const y = (place: number) => 30 + (1 - place) * (HEIGHT - 60);
  const sorted = [...rated].sort(
    (one, other) =>
      computeQuality(one.value ?? 0, values, sweep.goal) - computeQuality(other.value ?? 0, values, sweep.goal),
  );
  return (
    <div className="overflow-x-auto" tabIndex={0} role="group" aria-label={t("sweep.coordinates")}>
      <svg
        role="img"
        aria-label={t("sweep.coordinatesLabel")}
        viewBox={`0 0 ${width} ${HEIGHT}`}
        style={{ minWidth: width / 1.6 }}
        className="w-full"
      >
        {sorted.map(({ number, value, parameters }) => {
          const quality = computeQuality(value ?? 0, values, sweep.goal);
          const points = axes.flatMap((axis, index) => {
            const place = axis.place(index < names.length ? (parameters[axis.name] as Value | undefined) : value);
            return place === null ? [] : [`${x(index)},${y(place)}`];
          });
          return (
            <polyline
              key={number}
              points={points.join(" ")}
              fill="none"
              stroke={number === sweep.best ? "var(--accent-ink)" : "var(--muted)"}
              strokeWidth={number === sweep.best ? 2.5 : 1}
              opacity={number === sweep.best ? 1 : 0.15 + 0.6 * quality}
            >
              <title>{`#${number}: ${formatNumber(value ?? 0)}`}</title>
            </polyline>
          );
        })}
        {axes.map((axis, index) => (
          <g key={index} fontSize={11} textAnchor="middle" fill="var(--muted)">
            <line x1={x(index)} x2={x(index)} y1={y(0)} y2={y(1)} stroke="var(--line-strong)" />
            <text x={x(index)} y={12} fill="var(--ink)">
              {axis.name}
            </text>
            <text x={x(index)} y={25}>
              {axis.high}
            </text>
            <text x={x(index)} y={HEIGHT - 12}>
              {axis.low}
            </text>
          </g>
        ))}
      </svg>
    </div>
  );
}

/** How much each parameter matters, as bars. */
export function ImportanceBars({ items }: { items: { name: string; share: number }[] }) {
  return (
    <ul className="space-y-2 text-sm">
      {items.map(({ name, share }) => (
        <li key={name} className="grid grid-cols-[minmax(0,8rem)_1fr_3.5rem] items-center gap-3">
          <span className="truncate" title={name}>
            {name}
          </span>
          <span className="h-2 rounded-full bg-sunken">
            <span className="block h-2 rounded-full bg-accent" style={{ width: `${share * 100}%` }} />
          </span>
          <span className="text-right tabular-nums">{(share * 100).toFixed(1)}%</span>
        </li>
      ))}
    </ul>
  );
}

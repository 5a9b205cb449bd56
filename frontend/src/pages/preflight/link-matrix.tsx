import { type KeyboardEvent, useRef } from "react";
import { useTranslation } from "react-i18next";
import { cx } from "@/lib/cx";
import { formatMeasurement } from "@/lib/format";
import { SEVERITY_ICON, SEVERITY_TONE } from "@/ui/severity-badge";
import { type Cell, moveSelection } from "./matrix";

const LOOK = {
  ok: "border-ok-line bg-ok-soft text-ok-ink",
  warn: "border-warn-line bg-warn-soft text-warn-ink",
  bad: "border-bad-line bg-bad-soft text-bad-ink",
  idle: "border-line bg-sunken text-muted",
  info: "",
  accent: "",
} as const;

/** Larger matrices show only a sign in each cell. */
const ROOMY = 12;

interface GridProps {
  cells: Cell[][];
  chosen: [row: number, column: number];
  onChoose: (place: [row: number, column: number]) => void;
}

/** A matrix with one tab stop; the arrow keys move between cells. */
export function LinkMatrix({ cells, chosen, onChoose }: GridProps) {
  const { t } = useTranslation();
  const table = useRef<HTMLTableElement>(null);
  const roomy = cells.length <= ROOMY;
  const onKeyDown = (event: KeyboardEvent) => {
    const next = moveSelection(chosen, event.key, cells.length);
    if (!next) return;
    event.preventDefault();
    onChoose(next);
    table.current?.querySelector<HTMLElement>(`[data-place="${next.join(" ")}"]`)?.focus();
  };
  return (
    <div className="relative overflow-x-auto pb-1">
      <table ref={table} role="grid" aria-label={t("preflight.matrix")} className="border-separate border-spacing-1">
        <thead>
          <tr>
            <th className="text-left text-xs font-normal text-muted">{t("preflight.from")}</th>
            {cells.map(([cell], column) => (
              <th
                key={cell?.from.environmentId ?? column}
                scope="col"
                className={cx(
                  "truncate px-1 text-xs font-medium text-muted",
                  roomy ? "max-w-24" : "max-h-32 [writing-mode:vertical-rl]",
                )}
                title={cell?.from.name}
              >
                {cell?.from.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody onKeyDown={onKeyDown}>
          {cells.map((line, row) => (
            <tr key={line[0]?.from.environmentId ?? row}>
              <th
                scope="row"
                className="max-w-40 truncate pr-2 text-left text-sm font-medium"
                title={line[0]?.from.name}
              >
                {line[0]?.from.name}
              </th>
              {line.map((cell, column) => (
                <td key={cell.to.environmentId} role="gridcell" className="p-0">
                  <Square
                    cell={cell}
                    place={`${row} ${column}`}
                    chosen={chosen[0] === row && chosen[1] === column}
                    roomy={roomy}
                    onChoose={() => onChoose([row, column])}
                  />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface SquareProps {
  cell: Cell;
  place: string;
  chosen: boolean;
  roomy: boolean;
  onChoose: () => void;
}

function Square({ cell: { from, to, pair, level }, place, chosen, roomy, onChoose }: SquareProps) {
  const { t } = useTranslation();
  const what =
    from === to ? t("preflight.node", { name: from.name }) : t("preflight.pair", { from: from.name, to: to.name });
  const outcome = level ? t(`preflight.outcomeOf.${level}`) : t("preflight.waiting");
  const rtt = pair?.rttMs == null ? undefined : t("preflight.milliseconds", { value: formatMeasurement(pair.rttMs) });
  return (
    <button
      type="button"
      data-place={place}
      tabIndex={chosen ? 0 : -1}
      aria-label={[what, outcome, rtt].filter(Boolean).join(", ")}
      aria-pressed={chosen}
      title={what}
      onClick={onChoose}
      className={cx(
        "flex w-full items-center justify-center gap-1 rounded-md border text-xs whitespace-nowrap tabular-nums",
        roomy ? "h-9 min-w-24 px-2" : "h-7 min-w-7",
        level ? LOOK[SEVERITY_TONE[level]] : "border-dashed border-line text-muted",
        chosen && "ring-2 ring-accent-line ring-offset-1 ring-offset-surface",
      )}
    >
      {level ? SEVERITY_ICON[level] : "…"}
      {roomy && level && (rtt ?? outcome)}
    </button>
  );
}

import { memo, useState } from "react";
import { useTranslation } from "react-i18next";
import type { RankChoice } from "@/api/logs";
import type { RankProgress } from "@/api/types";
import { cx } from "@/lib/cx";
import { formatDuration, formatInteger } from "@/lib/format";

interface RankProgressTableProps {
  pulses: RankProgress[];
  chosen: RankChoice;
  onChoose: (rank: number) => void;
}

/** The progress of each rank; in a large job the longest waiting ones can be sorted first. */
export function RankProgressTable({ pulses, chosen, onChoose }: RankProgressTableProps) {
  const { t } = useTranslation();
  const [slowestFirst, setSlowestFirst] = useState(false);
  const rows = slowestFirst
    ? pulses.toSorted((one, other) => getSecondsSinceStep(other) - getSecondsSinceStep(one))
    : pulses;
  return (
    <div
      role="group"
      aria-label={t("rankProgress.title")}
      tabIndex={0}
      className="mt-3 max-h-80 overflow-auto rounded-lg border text-sm"
    >
      <table className="w-full text-right tabular-nums">
        <thead className="sticky top-0 bg-sunken text-muted">
          <tr className="*:px-2 *:py-1.5 *:font-medium">
            <th className="text-left">{t("rankProgress.rank")}</th>
            <th>{t("task.step")}</th>
            <th aria-sort={slowestFirst ? "descending" : "none"}>
              <button
                type="button"
                className="underline decoration-dotted"
                onClick={() => setSlowestFirst((on) => !on)}
              >
                {t("rankProgress.since")}
              </button>
            </th>
            <th>{t("rankProgress.waiting")}</th>
          </tr>
        </thead>
        <tbody className="divide-y">
          {rows.map((pulse) => (
            <Row key={pulse.rank} pulse={pulse} chosen={pulse.rank === chosen} onChoose={onChoose} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface RowProps {
  pulse: RankProgress;
  chosen: boolean;
  onChoose: (rank: number) => void;
}

const Row = memo(RankProgressRow, (before, after) => before.pulse === after.pulse && before.chosen === after.chosen);

function RankProgressRow({ pulse, chosen, onChoose }: RowProps) {
  const { t } = useTranslation();
  return (
    <tr className={cx("cursor-pointer *:px-2 *:py-1", chosen && "bg-accent-soft")} onClick={() => onChoose(pulse.rank)}>
      <td className="text-left">{pulse.rank}</td>
      <td>{pulse.step == null ? t(`rankProgress.phases.${pulse.phase}`) : formatInteger(pulse.step)}</td>
      <td>{pulse.sinceStep == null ? "–" : formatSeconds(t, pulse.sinceStep)}</td>
      <td>{pulse.waitingShare == null ? "–" : formatShare(pulse.waitingShare)}</td>
    </tr>
  );
}

function getSecondsSinceStep(pulse: RankProgress): number {
  return pulse.sinceStep ?? Infinity;
}

function formatSeconds(t: Parameters<typeof formatDuration>[0], seconds: number): string {
  return seconds < 10 ? t("rankProgress.seconds", { seconds: seconds.toFixed(1) }) : formatDuration(t, seconds);
}

function formatShare(part: number): string {
  return `${Math.round(part * 100)}%`;
}

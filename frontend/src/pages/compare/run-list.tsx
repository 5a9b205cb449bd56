import { Eye, EyeOff, X } from "lucide-react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import type { ComparedRun } from "@/api/compare";
import { cx } from "@/lib/cx";
import { formatNumber } from "@/lib/format";
import { Button } from "@/ui/button";
import { StatusBadge } from "@/ui/status-badge";
import { Table, ROW } from "@/ui/table";
import { getColorName, type RunStyle } from "./chart-data";
import { COLOR_COUNT, type View } from "./view";

const MAX_PARAMETERS = 6;

interface RunListProps {
  runs: ComparedRun[];
  styles: Map<string, RunStyle>;
  parameters: string[];
  metrics: string[];
  /** The newest values by run and metric. */
  newest: Map<string, Map<string, number>>;
  view: View;
  onChange: (to: Partial<View>) => void;
}

/** The runs with their colours: each can be hidden, coloured and removed. Shows in which parameters they differ. */
export function RunList({ runs, styles, parameters, metrics, newest, view, onChange }: RunListProps) {
  const { t } = useTranslation();
  const shown = parameters.slice(0, MAX_PARAMETERS);
  const toggle = (task: string) => {
    const hidden = new Set(view.hidden);
    if (!hidden.delete(task)) hidden.add(task);
    onChange({ hidden });
  };
  const recolor = (task: string, color: number) =>
    onChange({ colors: new Map(view.colors).set(task, (color + 1) % COLOR_COUNT) });
  const remove = (task: string) => onChange({ tasks: view.tasks.filter((each) => each !== task) });
  return (
    <Table
      label={t("compare.runs", { count: runs.length })}
      columns={[
        { label: t("compare.run") },
        { label: t("compare.status") },
        ...metrics.map((label) => ({ label, className: "text-right" })),
        ...shown.map((label) => ({ label })),
        { label: <span className="sr-only">{t("compare.actions")}</span> },
      ]}
    >
      {runs.map((run) => {
        const style = styles.get(run.taskId);
        if (!style) return null;
        const hides = view.hidden.has(run.taskId);
        return (
          <tr key={run.taskId} className={cx(ROW, hides && "opacity-50")}>
            <td>
              <span className="flex items-center gap-2">
                <button
                  type="button"
                  aria-label={t("compare.recolor", { name: style.label })}
                  className="size-4 shrink-0 rounded-full border"
                  style={{ background: `var(${getColorName(style.color)})` }}
                  onClick={() => recolor(run.taskId, style.color)}
                />
                <Link to={`/training/${run.taskId}`} className="min-w-0 font-medium break-all hover:underline">
                  {style.label}
                </Link>
              </span>
            </td>
            <td>
              <StatusBadge status={run.status} />
            </td>
            {metrics.map((metric) => {
              const value = newest.get(run.taskId)?.get(metric);
              return (
                <td key={metric} className="text-right tabular-nums">
                  {value === undefined ? "–" : formatNumber(value)}
                </td>
              );
            })}
            {shown.map((name) => (
              <td key={name} className="max-w-48 truncate" title={run.parameters[name]}>
                {formatParameter(run.parameters[name])}
              </td>
            ))}
            <td className="w-px py-1! whitespace-nowrap">
              <Button
                size="icon"
                look="ghost"
                aria-pressed={hides}
                aria-label={t(hides ? "compare.show" : "compare.hide", { name: style.label })}
                onClick={() => toggle(run.taskId)}
              >
                {hides ? <EyeOff /> : <Eye />}
              </Button>
              <Button
                size="icon"
                look="ghost"
                aria-label={t("compare.remove", { name: style.label })}
                onClick={() => remove(run.taskId)}
              >
                <X />
              </Button>
            </td>
          </tr>
        );
      })}
    </Table>
  );
}

/** Longer numbers are rounded. */
const MAX_DIGITS = 8;

/** Returns a parameter as it was given; numbers that a search drew have more digits than one can compare. */
function formatParameter(text: string | undefined): string {
  if (text === undefined) return "–";
  const number = Number(text);
  return text.length > MAX_DIGITS && text.trim() !== "" && Number.isFinite(number) && !Number.isInteger(number)
    ? formatNumber(number)
    : text;
}

import { useTranslation } from "react-i18next";
import { MAX_METRICS, type RunComparison } from "@/api/compare";
import { Button } from "@/ui/button";
import { MetricPicker } from "@/ui/metric-picker";
import { AXES, MAX_SMOOTHING, type View } from "./view";

/** Of machines: those that explain the speed of most runs. */
const MACHINE_METRICS = [
  "machine.gpu",
  "machine.gpu_memory",
  "machine.power",
  "machine.rank_cpu",
  "machine.rank_memory",
];

interface ControlsProps {
  comparison: RunComparison;
  chosen: string[];
  view: View;
  onChange: (to: Partial<View>) => void;
}

/** What is drawn, and how. */
export function Controls({ comparison, chosen, view, onChange }: ControlsProps) {
  const { t } = useTranslation();
  const names = comparison.metrics.map(({ name }) => name);
  const all = [...names, ...MACHINE_METRICS.filter((name) => comparison.machine.includes(name))];
  const differing = comparison.parameters.filter(({ differs }) => differs).map(({ name }) => name);
  const groups = view.group && !differing.includes(view.group) ? [view.group, ...differing] : differing;
  return (
    <div className="space-y-3">
      <div className="flex flex-wrap items-center gap-x-4 gap-y-2 text-sm text-muted">
        <label className="flex items-center gap-2">
          {t("compare.axis")}
          <select
            className="control w-auto"
            value={view.axis}
            onChange={({ target }) =>
              onChange({
                axis: AXES.find((axis) => axis === target.value) ?? "step",
                from: undefined,
                to: undefined,
              })
            }
          >
            {AXES.map((axis) => (
              <option key={axis} value={axis}>
                {t(`compare.axes.${axis}`)}
              </option>
            ))}
          </select>
        </label>
        <label className="flex items-center gap-2">
          {t("task.smoothing")}
          <input
            type="range"
            min={0}
            max={MAX_SMOOTHING}
            step={0.01}
            value={view.smoothing}
            className="w-28 accent-accent"
            onChange={({ target }) => onChange({ smoothing: Number(target.value) })}
          />
          <output className="w-8 tabular-nums">{view.smoothing.toFixed(2)}</output>
        </label>
        <label className="flex items-center gap-2">
          {t("compare.group")}
          <select
            className="control w-auto max-w-60"
            value={view.group}
            onChange={({ target }) => onChange({ group: target.value })}
          >
            <option value="">{t("compare.noGroup")}</option>
            {groups.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <label className="flex items-center gap-1.5">
          <input type="checkbox" checked={view.log} onChange={({ target }) => onChange({ log: target.checked })} />
          {t("task.logScale")}
        </label>
        <label className="flex items-center gap-1.5">
          <input
            type="checkbox"
            checked={view.extremes}
            onChange={({ target }) => onChange({ extremes: target.checked })}
          />
          {t("compare.extremes")}
        </label>
        {view.from !== undefined && (
          <Button size="sm" onClick={() => onChange({ from: undefined, to: undefined })}>
            {t("compare.whole")}
          </Button>
        )}
      </div>
      <MetricPicker
        names={all}
        chosen={chosen}
        onChange={(metrics) => metrics.length > 0 && metrics.length <= MAX_METRICS && onChange({ metrics })}
      />
    </div>
  );
}

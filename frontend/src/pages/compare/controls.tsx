import { useState } from "react";
import { useTranslation } from "react-i18next";
import { MAX_METRICS, type RunComparison } from "@/api/compare";
import { cx } from "@/lib/cx";
import { Button } from "@/ui/button";
import { AXES, MAX_SMOOTHING, type View } from "./view";

/** From so many metrics on, their names can be searched. */
const MANY_METRICS = 12;
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
  const [search, setSearch] = useState("");
  const names = comparison.metrics.map(({ name }) => name);
  const all = [...names, ...MACHINE_METRICS.filter((name) => comparison.machine.includes(name))];
  const matches = (name: string) => name.toLowerCase().includes(search.toLowerCase());
  const listed = [...new Set([...all, ...chosen])].filter((name) => chosen.includes(name) || matches(name));
  const toggle = (name: string) => {
    const metrics = chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name];
    if (metrics.length > 0 && metrics.length <= MAX_METRICS) onChange({ metrics });
  };
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
      {all.length >= MANY_METRICS && (
        <input
          type="search"
          aria-label={t("task.findMetrics")}
          placeholder={t("task.findMetrics")}
          className="control sm:w-64"
          value={search}
          onChange={({ target }) => setSearch(target.value)}
        />
      )}
      <div
        role="group"
        aria-label={t("task.chooseMetrics")}
        className="flex max-h-40 flex-wrap gap-1.5 overflow-y-auto"
      >
        {listed.map((name) => (
          <button
            key={name}
            type="button"
            aria-pressed={chosen.includes(name)}
            onClick={() => toggle(name)}
            className={cx(
              "max-w-full truncate rounded-full border px-2.5 py-0.5 text-xs",
              chosen.includes(name)
                ? "border-accent-line/40 bg-accent-soft font-medium text-accent-ink"
                : "text-muted hover:text-ink",
            )}
          >
            {name}
          </button>
        ))}
      </div>
    </div>
  );
}
